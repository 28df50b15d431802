"""Jobs whose store or service may be unreachable. Training continues, and no report is lost.

While the store is unreachable:

    a new run        takes the default batch size, with no cost limit
    a running trial  is held to the cost limit that it was given
    each report      waits on disk, and is delivered at the next contact

A trial that began without the store gets a number that no store gives. Once its report is delivered, the store holds
it as a recurrence of its own.
"""

from __future__ import annotations

import logging
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar
from uuid import uuid4

from zeus.client.api import (
    ALONE,
    WHOLE,
    EpochUsed,
    Excerpt,
    Heartbeat,
    Json,
    Message,
    OfflineRun,
    ProfileMade,
    Registered,
    TrialEnded,
    TrialLog,
    TrialRef,
)
from zeus.client.origin import here
from zeus.client.resilient.cache import CachedTrial
from zeus.client.resilient.outbox import Delivered, Outbox, Queued
from zeus.client.resilient.retry import ONCE, Patience, look, quick, soon
from zeus.cost import fits
from zeus.errors import NotKnown, StoreError, ZeusError
from zeus.job import MAX_TRIES, Ask, Decision, Gpus, JobSpec, Outcome, Phase, Trial, TrialRecord, replace
from zeus.profile import PowerProfile, ProfileKey
from zeus.settings import patience as patience_to_begin
from zeus.settings import time_limits
from zeus.store.api import LEASE_SECONDS
from zeus.store.rules import apply_tell, check_progress
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)
T = TypeVar("T")

SEEDS = 2**31


class ResilientJobs:
    """A `JobsApi` over an outbox.

    Args:
        outbox: The jobs, and the messages that wait for them.
        begin: How long to wait at the start of a run. Default: ZEUS_PATIENCE.
    """

    def __init__(self, outbox: Outbox, begin: Patience | None = None) -> None:
        self._outbox, self._jobs, self._cache = outbox, outbox.jobs, outbox.cache
        self.address = outbox.jobs.address
        self._begin = begin or Patience.to_begin(patience_to_begin())
        self._now: dict[str, Registered] = {}  # jobs as this process has last seen them
        # Jobs that are registered once the store is back, and whether that may void earlier trials.
        self._unregistered: dict[str, bool] = {}
        self._logs: dict[int, str] = {}  # of trials that began without the store, sent with their runs
        self._later: defaultdict[str, list[EpochUsed]] = defaultdict(list)  # sent once their job is registered

    # ------------------------------------------------------------------ beginning

    def register(self, spec: JobSpec, *, void: bool = False) -> Registered:
        """As in `JobsApi`. If the store is unreachable, this is done when it is back."""
        try:
            return self._register(spec, void)
        except StoreError as away:
            log.warning("%s Until it is back, job %r runs with its default batch size.", away, spec.id)
            seen = self._cache.job(spec.id)
            now = Registered(_filled(spec, seen), "" if seen is None else seen.generation)
            self._cache.keep_job(now)
            return self._see(now, unregistered=void)

    def _register(self, spec: JobSpec, void: bool) -> Registered:
        return self._see(self._after(lambda: self._jobs.register(spec, void=void), self._begin, begins=True))

    def find(self, job_id: str) -> Registered:
        """A registered job, or one that this machine has seen and whose store is unreachable."""
        seen = self._cache.job(job_id)
        patience = self._begin if seen is None else soon()
        try:
            return self._see(self._after(lambda: self._jobs.find(job_id), patience, begins=True))
        except (StoreError, NotKnown) as away:
            if seen is None or (isinstance(away, NotKnown) and not self._cache.runs_alone(job_id)):
                raise
            return self._see(seen, unregistered=False)

    def _see(self, now: Registered, *, unregistered: bool | None = None) -> Registered:
        """Remember a job. `unregistered` is None if this is what the store has answered."""
        job_id = now.spec.id
        self._now[job_id] = now
        if unregistered is None:
            self._unregistered.pop(job_id, None)
            self._cache.keep_job(now)
        else:
            self._unregistered[job_id] = unregistered
        return now

    def ask(
        self,
        job_id: str,
        gpus: Gpus,
        recurrence: int | None = None,
        max_tries: int = MAX_TRIES,
        *,
        key: str | None = None,
    ) -> tuple[Trial, Registered]:
        """Open a trial in the store. If it is unreachable, begin one here with the default batch size."""
        stored = recurrence if recurrence is None or recurrence < ALONE else None
        try:
            if job_id in self._unregistered:
                self._register(self._now[job_id].spec, self._unregistered[job_id])
            # Even without a key of the caller: a retry after a lost answer must not open a second trial.
            key = key or uuid4().hex
            trial, now = self._after(lambda: self._jobs.ask(job_id, gpus, stored, max_tries, key=key), self._begin)
        except StoreError as away:
            if (known := self._known(job_id)) is None:
                raise
            trial = self._begin_alone(known, gpus, recurrence)
            if job_id not in self._unregistered:  # otherwise `register` has warned already
                log.warning("%s This trial takes the default batch size, %s.", away, trial.batch_size)
            return trial, known
        self._cache.keep(job_id, CachedTrial(trial))
        return trial, self._see(now)

    def _known(self, job_id: str) -> Registered | None:
        """A job as this process, or else this machine, has last seen it."""
        return self._now.get(job_id) or self._cache.job(job_id)

    def _begin_alone(self, now: Registered, gpus: Gpus, recurrence: int | None) -> Trial:
        """Begin a trial without the store. It is the last try of its recurrence, so it has no cost limit."""
        number, size = ALONE + secrets.randbelow(ALONE), now.spec.default_batch_size
        ask = Ask(number=number, recurrence=recurrence or number, gpus=gpus, eta=now.spec.eta_knob, last=True)
        decision = Decision(size, Phase.DEFAULT, f"{size} is the default; the store could not be reached.")
        trial = Trial(ask=ask, decision=decision, asked=1)
        self._cache.keep(now.spec.id, CachedTrial(trial, key=uuid4().hex, job=now))
        return trial

    # ------------------------------------------------------------------ on the way

    def trial(self, ref: TrialRef) -> TrialRecord:
        """A trial as the store has it. The local copy counts if the store is unreachable or misses its end.

        A trial that began without the store has another number there, once it was reported.
        """
        cached = self._cached(ref)
        if cached is not None and (stored := cached.stored) is not None:
            cached, ref = CachedTrial(stored, is_accepted=True), TrialRef(ref.job_id, stored.number, stored.id)
        if cached is not None:
            copy = TrialRecord(trial=cached.trial, asked_at="", changed_at="", leased_until=None, so_far=cached.so_far)
            if ref.number >= ALONE or (cached.trial.ended is not None and not cached.is_accepted):
                return copy
        try:
            record = self._after(lambda: self._jobs.trial(ref), soon())
        except StoreError:
            if cached is None:
                raise
            return copy
        # A report that was not delivered may be newer than what the store has.
        reports = [one for one in (record.so_far, None if cached is None else cached.so_far) if one is not None]
        return (
            record if record.leased_until is None else replace(record, so_far=max(reports, key=_seconds, default=None))
        )

    def heartbeat(
        self,
        ref: TrialRef,
        so_far: Outcome | None = None,
        next_cost: float | None = None,
        *,
        lease: float = LEASE_SECONDS,
    ) -> Heartbeat:
        """As in `JobsApi`. If the store is unreachable, the trial's own cost limit decides."""
        check_progress(so_far)
        cached = self._cached(ref)
        if cached is None or ref.number < ALONE:
            try:
                return self._after(lambda: self._jobs.heartbeat(ref, so_far, next_cost, lease=lease), quick())
            except StoreError:
                if cached is None:
                    raise
                cached = self._cached(ref) or cached  # the trial may have ended during the wait
        if so_far is not None and cached.trial.outcome is None:
            cached = replace(cached, so_far=so_far)
            self._cache.keep(ref.job_id, cached)
        return Heartbeat(cached.trial, next_cost is None or fits(next_cost, cached.trial.decision.cost_limit))

    # ------------------------------------------------------------------ the end

    def tell(self, ref: TrialRef, outcome: Outcome) -> Trial:
        """Report how a trial ended. If the store is unreachable, the report is delivered later.

        Raises:
            StoreError: The store is unreachable, and either the report cannot be written to disk, or the trial was
                opened on another machine: the report waits, but the ended trial cannot be returned.
        """
        cached = self._cached(ref)
        after = None if cached is None else apply_tell(ref.job_id, cached.trial, outcome, cached.trial.sequence + 1)
        if cached is not None and after is cached.trial:  # reported before
            return after
        sent = self._send_at_last(self._ending(ref, cached, outcome))
        self._send_later(ref.job_id)
        match sent:
            case Delivered(trial) if trial is not None and ref.number < ALONE:
                return trial
            case Queued():
                waits = "the outcome of trial %s waits in %s until %s can be reached."
                log.warning(waits, ref.number, self._outbox.spool.folder, self._outbox.contact.name)
        if cached is None or after is None:
            raise StoreError(
                f"the store did not answer. The outcome of trial {ref.number} waits in {self._outbox.spool.folder}."
            )
        self._cache.keep(ref.job_id, replace(self._cached(ref) or cached, trial=after))
        return after

    def _ending(self, ref: TrialRef, cached: CachedTrial | None, outcome: Outcome) -> Message:
        if cached is None or cached.key is None:
            return TrialEnded(ref.job_id, ref.number, outcome, ref.id)
        known = cached.job or self._known(ref.job_id)
        if known is None:
            raise StoreError(f"job {ref.job_id!r} is not known on this machine. This report is lost: {outcome}.")
        trial = cached.trial
        log_end = self._logs.pop(trial.number, "")
        return OfflineRun(
            known.spec, trial.ask.gpus, trial.batch_size, cached.key, outcome, known.generation, log_end, here()
        )

    def _send_at_last(self, message: Message) -> Delivered | Queued:
        """Send the message or write it to disk. If both fail, retry for some minutes: it cannot be measured again."""
        contact, limits, warned = self._outbox.contact, time_limits(), False
        until = contact.clock() + limits.outcome_retry
        while True:
            try:
                return self._outbox.send(message)
            except StoreError as wrong:
                if contact.clock() >= until:
                    raise StoreError(f"{wrong} This report is lost: {message}.") from wrong
                if not warned:
                    log.warning("%s Zeus retries for %g s to report how the trial ended.", wrong, limits.outcome_retry)
                warned = True
                contact.sleep(limits.outcome_pause)

    def record_run(self, run: OfflineRun) -> Trial:
        """As in `JobsApi`. It is never queued: `tell` does that."""
        return self._outbox.call(lambda: self._jobs.record_run(run), soon())

    # ------------------------------------------------------------------ profiles and estimates

    def profiled(self, used: EpochUsed) -> None:
        """Report what an epoch uses. If the job is not registered yet, this is sent after the end of the trial."""
        if used.job_id in self._unregistered:
            self._later[used.job_id].append(used)
        else:
            self._outbox.send(used, quick())

    def _send_later(self, job_id: str) -> None:
        for used in self._later.pop(job_id, ()):
            try:
                self._outbox.send(used, quick())
            except ZeusError as wrong:  # not worth an exception: the outcome, which matters more, was reported
                log.warning("what an epoch uses could be neither sent nor written to disk: %s", wrong)

    def knowledge(self, job_id: str, trial: Trial) -> Knowledge:
        """What earlier trials tell about this one's epochs; nothing if the store is unreachable."""
        try:
            return self._after(lambda: self._jobs.knowledge(job_id, trial), quick())
        except ZeusError:  # also raised for a trial that began without the store, whose number no service accepts
            return Knowledge()

    def keep_log(self, log: TrialLog, *, is_last: bool = False) -> None:
        """Keep the end of a trial's log. If the store is unreachable, only the last one is sent later."""
        if log.number >= ALONE:
            self._logs[log.number] = log.text
        elif is_last:
            self._outbox.send(log, quick())
        else:
            self._outbox.call(lambda: self._jobs.keep_log(log), quick())

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> None:
        self._after(lambda: self._jobs.excuse(job_id, numbers, generation=generation), soon())

    def profile(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of this key. None if the store is unreachable, so that it is measured again."""
        try:
            return self._after(lambda: self._jobs.profile(key), quick())
        except StoreError:
            return None

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        """All power profiles of a job; none if the store is unreachable or does not know the job yet."""
        try:
            return self._after(lambda: self._jobs.profiles(job_id), quick())
        except (NotKnown, StoreError):
            return {}

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store a profile. If the store is unreachable, it is sent later."""
        self._outbox.send(ProfileMade(key, profile), quick())

    # ------------------------------------------------------------------ for `zeus jobs`, whose user waits

    def briefs(self) -> list[Json]:
        return self._for_person(self._jobs.briefs)

    def full(self, job_id: str, excerpt: Excerpt = WHOLE) -> Json:
        return self._for_person(lambda: self._jobs.full(job_id, excerpt))

    def trials(self, job_id: str, *, newest: int | None = None) -> list[Json]:
        return self._for_person(lambda: self._jobs.trials(job_id, newest=newest))

    def told_log(self, job_id: str, number: int) -> Json:
        return self._for_person(lambda: self._jobs.told_log(job_id, number))

    def export(self, job_ids: Iterable[str]) -> list[str]:
        return self._for_person(lambda: self._jobs.export(job_ids))

    def pulse(self) -> dict[str, str]:
        return self._for_person(self._jobs.pulse)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        return self._for_person(lambda: self._jobs.import_lines(lines), ONCE)

    def forget(self, job_id: str) -> None:
        self._for_person(lambda: self._jobs.forget(job_id), ONCE)

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        self._for_person(lambda: self._jobs.restart(job_id, pulse), ONCE)

    def pardon(self, job_id: str, batch_size: int) -> None:
        self._for_person(lambda: self._jobs.pardon(job_id, batch_size), ONCE)

    def fleet(self, weeks: int, last: str = "") -> Json:
        return self._for_person(lambda: self._jobs.fleet(weeks, last))

    def pause(self, job_id: str, *, paused: bool = True) -> None:
        self._for_person(lambda: self._jobs.pause(job_id, paused=paused), ONCE)

    def audit(self, job_id: str, *, after: int = 0, most: int = 100) -> Json:
        return self._for_person(lambda: self._jobs.audit(job_id, after=after, most=most))

    def close(self) -> None:
        self._outbox.close()

    # ------------------------------------------------------------------ inside

    def _after(self, request: Callable[[], T], patience: Patience, *, begins: bool = False) -> T:
        """Call the store after the messages that wait for it. `begins` is as in `Outbox.call`."""
        self._outbox.deliver(patience)
        return self._outbox.call(request, patience, begins=begins)

    def _for_person(self, request: Callable[[], T], patience: Patience | None = None) -> T:
        """The same for somebody who waits for the answer."""
        return self._after(request, patience or look(), begins=True)

    def _cached(self, ref: TrialRef) -> CachedTrial | None:
        """The local copy of a trial that was opened here, unless its id shows that another trial is meant."""
        cached = self._cache.trial(ref.job_id, ref.number)
        return None if cached is not None and ref.id and ref.id != cached.trial.id else cached


def _seconds(outcome: Outcome) -> float:
    return outcome.seconds


def _filled(spec: JobSpec, seen: Registered | None) -> JobSpec:
    """The spec with id and seed filled in, as the store would do."""
    seed = spec.mab_seed
    if seed is None:
        seed = secrets.randbelow(SEEDS) if seen is None else seen.spec.mab_seed
    return replace(spec, job_id=spec.id, mab_seed=seed)
