"""The jobs of a store in this process. The policy decides here, inside the store's transaction."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterable

from zeus.client.api import (
    WHOLE,
    EpochUsed,
    Excerpt,
    Heartbeat,
    Json,
    OfflineRun,
    Registered,
    TrialLog,
    TrialRef,
)
from zeus.client.digest_writer import DigestsAtOnce, DigestWriter
from zeus.client.origin import here
from zeus.client.policy_states import PolicyStateCache
from zeus.errors import AlreadyDone, InputError, StoreUnusable
from zeus.job import MAX_TRIES, Ask, Decision, Gpus, JobSpec, Origin, Outcome, Phase, Profiled, Trial, TrialRecord
from zeus.policy.registry import find_policy
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.actor import current
from zeus.store.api import LEASE_SECONDS, Facts, Job, Request, Store
from zeus.store.rules import check_generation
from zeus.tariff.settings import prices
from zeus.trial.knowledge import Knowledge, gather

LATELY = 500  # newest trials from which the epochs of a new one are estimated


class LocalJobs:
    """A `JobsApi` over a store.

    Args:
        store: The store, or what opens it when it is first needed. That is called again until it succeeds.
        address: Address of the store, without secrets.
        states: The policies' states, to share them with others.
        digests: What computes the digests of jobs that have changed.
        origin: Who opens a trial here, and where.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store],
        address: str = "",
        states: PolicyStateCache | None = None,
        digests: DigestWriter | None = None,
        origin: Callable[[], Origin | None] = here,
    ) -> None:
        self._open = store if callable(store) else None
        self._store = None if callable(store) else store
        self._lock = threading.Lock()
        self._states = states or PolicyStateCache()
        self._digests = digests or DigestsAtOnce(self._refresh)
        self._origin = origin
        self.address = address

    @property
    def store(self) -> Store:
        """The store, opened if it was not yet.

        Raises:
            StoreUnusable: The store cannot be opened, and waiting does not help.
            StoreError: The store is unreachable.
        """
        with self._lock:
            if self._store is None:
                assert self._open is not None
                try:
                    self._store = self._open()
                except InputError as wrong:
                    raise StoreUnusable(str(wrong)) from wrong
            return self._store

    # ------------------------------------------------------------------ a job and its trials

    def register(self, spec: JobSpec, *, void: bool = False) -> Registered:
        return _registered(self.store.register(spec, policy_version=find_policy(spec.policy).version, void=void))

    def find(self, job_id: str) -> Registered:
        return _registered(self.store.job(job_id))

    def ask(
        self,
        job_id: str,
        gpus: Gpus,
        recurrence: int | None = None,
        max_tries: int = MAX_TRIES,
        *,
        key: str | None = None,
        lease: float = LEASE_SECONDS,
        resume: bool = False,
        origin: Origin | None = None,
    ) -> tuple[Trial, Registered]:
        """As in `JobsApi`. With `resume`, an unfinished recurrence whose trials all failed is continued.

        `origin` is who asks, and where, if that is not this process.
        """
        origin = origin or self._origin()
        request = Request(gpus=gpus, recurrence=recurrence, max_tries=max_tries, resume=resume, origin=origin)
        asked = list[Job]()  # the job as it is decided on: it may have been revised since the caller saw it

        def decide(job: Job, ask: Ask, facts: Facts) -> Decision:
            asked.append(job)
            return self._states.decide(job, ask, facts)

        self._states.prepare(self.store, job_id)
        trial = self.store.ask(job_id, request, decide, lease=lease, key=key)
        self.changed(job_id, trial.number)
        return trial, _registered(asked[-1] if asked else self.store.job(job_id))

    def trial(self, ref: TrialRef) -> TrialRecord:
        return self.store.trial(ref.job_id, ref.number, trial_id=ref.id)

    def heartbeat(
        self,
        ref: TrialRef,
        so_far: Outcome | None = None,
        next_cost: float | None = None,
        *,
        lease: float = LEASE_SECONDS,
    ) -> Heartbeat:
        if next_cost is not None and so_far is None:
            raise InputError("next_cost needs so_far. Say there what the trial has used until now.")
        trial = self.store.renew(ref.job_id, ref.number, so_far, trial_id=ref.id, lease=lease)
        if next_cost is None or so_far is None:
            return Heartbeat(trial, True)
        job = self.store.job(ref.job_id)
        if job.paused_by:
            return Heartbeat(trial, True)
        policy = find_policy(job.spec.policy, job.policy_version)
        state = self._states.state_in(self.store, job)
        return Heartbeat(trial, policy.keep_going(state, trial, so_far.epochs, next_cost))

    def tell(self, ref: TrialRef, outcome: Outcome) -> Trial:
        trial = self.store.tell(ref.job_id, ref.number, outcome, trial_id=ref.id)
        self.changed(ref.job_id, ref.number)
        return trial

    def record_run(self, run: OfflineRun) -> Trial:
        """Register the job, open a trial and end it. Once per key."""
        store, spec, size = self.store, run.spec, run.batch_size
        if size not in spec.batch_sizes:
            raise InputError(f"job {spec.id!r} has no batch size {size}. Report one of {list(spec.batch_sizes)}.")
        if run.generation:
            store.job(spec.id)  # raises if the job was removed since: it must not be made again
        else:
            with contextlib.suppress(AlreadyDone):  # the job was revised since the run began: the revision stays
                version, revive = find_policy(spec.policy).version, run.generation == ""
                store.register(spec, policy_version=version, revise=False, revive=revive)

        def decide(job: Job, ask: Ask, facts: Facts) -> Decision:
            check_generation(job, run.generation or "")
            return Decision(size, Phase.DEFAULT, f"{size} is the default; the store could not be reached.")

        request = Request(gpus=run.gpus, target=spec.target, origin=run.origin or self._origin())
        asked = store.ask(spec.id, request, decide, key=f"late:{run.key}")
        trial = store.tell(spec.id, asked.number, run.outcome, trial_id=asked.id)
        self.changed(spec.id, trial.number)
        return trial

    def profiled(self, used: EpochUsed) -> None:
        self.store.profiled(
            used.job_id,
            used.batch_size,
            used.gpus,
            joules=used.joules,
            seconds=used.seconds,
            generation=used.generation,
        )

    def knowledge(self, job_id: str, trial: Trial) -> Knowledge:
        lately = self.store.trials(job_id, after=max(0, self.store.count(job_id) - LATELY))
        notes = [note for note in self.store.notes(job_id) if isinstance(note, Profiled)]
        return gather(lately, notes, trial.batch_size, trial.ask.gpus)

    def keep_log(self, log: TrialLog, *, is_last: bool = False) -> None:
        self.store.logs.keep(log.job_id, log.number, log.text, trial_id=log.trial_id)

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> None:
        self.store.excuse(job_id, numbers, generation=generation)
        self.changed(job_id)

    def profile(self, key: ProfileKey) -> PowerProfile | None:
        return self.store.get_profile(key)

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        return self.store.profiles(job_id)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        self.store.put_profile(key, profile)

    def changed(self, job_id: str, trials: int = 0) -> None:
        """Tell that the facts of a job have changed, so that its digest is computed again."""
        self._digests.changed(job_id, trials)

    def _refresh(self, job_id: str) -> None:
        from zeus.client.report import Digests  # imported late: few processes need it

        Digests(self.store, self._states).refresh(job_id)

    # ------------------------------------------------------------------ for `zeus jobs`

    def briefs(self) -> list[Json]:
        from zeus.client.report import Digests

        return Digests(self.store).briefs(prices())

    def full(self, job_id: str, excerpt: Excerpt = WHOLE) -> Json:
        from zeus.client.report import full, report

        told = full(report(self.store, job_id, self._states), prices(), self.store.logs.times(job_id), excerpt)
        return {**told, **current().rights(told["owner"])}

    def trials(self, job_id: str, *, newest: int | None = None) -> list[Json]:
        from zeus.client.report import trial_json

        after = 0 if newest is None else max(0, self.store.count(job_id) - newest)
        spec, rates, logs = self.store.job(job_id).spec, prices(), self.store.logs.times(job_id)
        return [
            trial_json(spec, record, rates, logs, points=0)
            for record in self.store.trials(job_id, after=after, most=newest)
        ]

    def told_log(self, job_id: str, number: int) -> Json:
        from zeus.client.trial_log import told_log

        return told_log(self.store, job_id, number)

    def export(self, job_ids: Iterable[str]) -> list[str]:
        return self.store.export(list(job_ids) or None)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        job_ids = self.store.import_lines(lines)
        for job_id in job_ids:
            self.changed(job_id)
        return job_ids

    def forget(self, job_id: str) -> None:
        self.store.forget(job_id)

    def pulse(self) -> dict[str, str]:
        return self.store.pulse()

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        version = find_policy(self.store.job(job_id).spec.policy).version
        self.store.restart(job_id, policy_version=version, pulse=pulse)

    def pardon(self, job_id: str, batch_size: int) -> None:
        self.store.pardon(job_id, batch_size)
        self.changed(job_id)

    def fleet(self, weeks: int, last: str = "") -> Json:
        from zeus.client.report import Digests
        from zeus.client.report.fleet import fleet_of

        return fleet_of(Digests(self.store, self._states).weeks(math.inf), weeks, last, prices())

    def pause(self, job_id: str, *, paused: bool = True) -> None:
        self.store.pause(job_id, paused=paused)
        self.changed(job_id)

    def audit(self, job_id: str, *, after: int = 0, most: int = 100) -> Json:
        found = self.store.audit.read(job_id, after=after, most=most)
        return {"total": found.total, "entries": [one.to_json() for one in found.entries]}

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.close()


def _registered(job: Job) -> Registered:
    return Registered(job.spec, job.generation)
