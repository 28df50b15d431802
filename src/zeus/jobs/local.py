"""A recurring job over a store. The policy decides in this process, inside the store's transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from zeus.errors import AlreadyDone, InputError
from zeus.job import MAX_TRIES, Ask, Decision, Gpus, JobSpec, Outcome, Phase, Profiled, Trial
from zeus.jobs.folds import Folds
from zeus.jobs.messages import OfflineRun
from zeus.policy.registry import find_policy
from zeus.profile import PowerProfile, ProfileKey, nearest
from zeus.store.api import LEASE_SECONDS, Facts, Job, Request, Store
from zeus.store.rules import same_life
from zeus.trial.knowledge import Knowledge, gather

LATELY = 500  # newest trials from which the epochs of a new one are estimated


def knowledge_of(store: Store, job_id: str, trial: Trial) -> Knowledge:
    """What the store's facts tell about the epochs of a trial."""
    lately = store.trials(job_id, after=max(0, store.count(job_id) - LATELY))
    profiled = [note for note in store.notes(job_id) if isinstance(note, Profiled)]
    return gather(lately, profiled, trial.batch_size, trial.ask.gpus)


def record_run(store: Store, ran: OfflineRun) -> Trial:
    """Record a run that began without the store: register the job, open a trial and end it. Once per key."""
    spec, size = ran.spec, ran.batch_size
    if size not in spec.batch_sizes:
        raise InputError(f"job {spec.id!r} has no batch size {size}. Report one of {list(spec.batch_sizes)}.")
    if ran.life:
        store.job(spec.id)  # raises if the job was removed since: it must not be made again
    else:
        with contextlib.suppress(AlreadyDone):  # the job was revised since the run began: the revision stays
            version, revive = find_policy(spec.policy).version, ran.life == ""
            store.register(spec, policy_version=version, revise=False, revive=revive)

    def decide(job: Job, ask: Ask, facts: Facts) -> Decision:
        same_life(job, ran.life or "")
        return Decision(size, Phase.DEFAULT, f"{size} is the default; the store could not be reached.")

    request = Request(gpus=ran.gpus, target=spec.target)
    asked = store.ask(spec.id, request, decide, key=f"late:{ran.key}")
    return store.tell(spec.id, asked.number, ran.outcome, trial_id=asked.id)


class LocalJob:
    """A `RecurringJob` over a store."""

    def __init__(self, store: Store, job_id: str, folds: Folds | None = None) -> None:
        self._store = store
        self._job = store.job(job_id)
        self._folds = folds or Folds()
        self._ids: dict[int, str] = {}  # trial ids by number, of trials opened here or given by `hand`

    @classmethod
    def register(cls, store: Store, spec: JobSpec, folds: Folds | None = None, *, void: bool = False) -> LocalJob:
        job = store.register(spec, policy_version=find_policy(spec.policy).version, void=void)
        return cls(store, job.id, folds)

    @property
    def spec(self) -> JobSpec:
        return self._job.spec

    @property
    def life(self) -> str:
        return self._job.generation

    def ask(
        self,
        gpus: Gpus,
        recurrence: int | None = None,
        max_tries: int = MAX_TRIES,
        *,
        lease: float = LEASE_SECONDS,
        key: str | None = None,
        resume: bool = False,
    ) -> Trial:
        request = Request(gpus=gpus, recurrence=recurrence, max_tries=max_tries, resume=resume)
        self._folds.prepare(self._store, self._job.id)
        trial = self._store.ask(self._job.id, request, self._folds.decide, lease=lease, key=key)
        self._job = self._store.job(self._job.id)  # it may have been revised in the meantime
        self.hand(trial.number, trial.id)
        return trial

    def hand(self, number: int, trial_id: str) -> None:
        self._ids[number] = trial_id

    def trial(self, number: int) -> Trial:
        return self._store.trial(self._job.id, number, trial_id=self._id(number)).trial

    def so_far(self, number: int) -> Outcome | None:
        return self._store.trial(self._job.id, number, trial_id=self._id(number)).so_far

    def _id(self, number: int) -> str:
        return self._ids.get(number, "")

    def renew(self, number: int, so_far: Outcome | None = None, *, lease: float = LEASE_SECONDS) -> Trial:
        return self._store.renew(self._job.id, number, so_far, trial_id=self._id(number), lease=lease)

    def progress(self, number: int, so_far: Outcome, next_cost: float, *, lease: float = LEASE_SECONDS) -> bool:
        trial = self.renew(number, so_far, lease=lease)
        job = self._store.job(self._job.id)
        policy = find_policy(job.spec.policy, job.policy_version)
        state = self._folds.state(job, partial(self._store.log, job.id))
        return policy.keep_going(state, trial, so_far.epochs, next_cost)

    def tell(self, number: int, outcome: Outcome) -> Trial:
        return self._store.tell(self._job.id, number, outcome, trial_id=self._id(number))

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        self._store.profiled(self._job.id, batch_size, gpus, joules=joules, seconds=seconds, life=self.life)

    def knowledge(self, trial: Trial) -> Knowledge:
        return knowledge_of(self._store, self._job.id, trial)

    def excuse(self, numbers: Iterable[int]) -> None:
        self._job = self._store.excuse(self._job.id, numbers, life=self.life)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        return self._store.get_profile(key)

    def near(self, key: ProfileKey) -> PowerProfile | None:
        for size in nearest(key.batch_size, self.spec.batch_sizes):
            if (profile := self.get(replace(key, batch_size=size))) is not None:
                return profile
        return None

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        self._store.put_profile(key, profile)
