"""A recurring job whose store or service may be unreachable. Training continues, and no report is lost.

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
from collections.abc import Iterable
from dataclasses import replace
from uuid import uuid4

from zeus.cost import fits
from zeus.errors import NotKnown, StoreError, ZeusError
from zeus.job import MAX_TRIES, Ask, Decision, Gpus, JobSpec, Outcome, Phase, Trial
from zeus.jobs.api import ALONE
from zeus.jobs.messages import EpochUsed, Message, OfflineRun, ProfileMade, TrialEnded
from zeus.jobs.remote.backend import HeartbeatAnswer, Registered, Which
from zeus.jobs.remote.offline_cache import Mine
from zeus.jobs.remote.outbox import Heard, Outbox, Waits
from zeus.jobs.remote.retry import Patience, quick, soon
from zeus.profile import PowerProfile, ProfileKey, nearest
from zeus.settings import time_limits
from zeus.store.rules import lost, told
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

SEEDS = 2**31


class ResilientJob:
    """A `RecurringJob` over an outbox."""

    def __init__(
        self, outbox: Outbox, spec: JobSpec, *, is_registered: bool, life: str = "", void: bool = False
    ) -> None:
        self._outbox, self._backend, self._known = outbox, outbox.backend, outbox.known
        self._spec = spec
        self.life = life
        self._void = void  # whether registering may void earlier trials
        self._ids: dict[int, str] = {}  # trial ids by number, of trials opened here or given by `hand`
        self._is_registered = is_registered  # as far as this process knows
        self._later: list[EpochUsed] = []  # sent once the job is registered

    @classmethod
    def find(cls, outbox: Outbox, job_id: str) -> ResilientJob:
        """Find a registered job, or one that this machine has seen and whose store is unreachable."""
        seen = outbox.known.spec(job_id)
        patience = outbox.backend.begin if seen is None else soon()
        try:
            outbox.deliver(patience)
            found = outbox.backend.find(job_id, patience)
        except (StoreError, NotKnown) as away:
            if seen is None or (isinstance(away, NotKnown) and not outbox.known.runs_alone(job_id)):
                raise
            return cls(outbox, seen, is_registered=False, life=outbox.known.life(job_id))
        outbox.known.keep_spec(found.spec, found.life)
        return cls(outbox, found.spec, is_registered=True, life=found.life)

    @classmethod
    def register(cls, outbox: Outbox, spec: JobSpec, *, void: bool = False) -> ResilientJob:
        """Register the job, or revise it if it exists. If the store is unreachable, this is done when it is back."""
        job = cls(outbox, spec, is_registered=False, life=outbox.known.life(spec.id), void=void)
        try:
            job._register()
        except StoreError as away:
            log.warning("%s Until it is back, job %r runs with its default batch size.", away, spec.id)
            job._spec = _filled(spec, outbox.known.spec(spec.id))
            outbox.known.keep_spec(job._spec, job.life)
        return job

    def _register(self) -> None:
        self._outbox.deliver(self._backend.begin)
        self._is(self._backend.register(self._spec, self._void, self._backend.begin))
        self._is_registered = True

    def _is(self, now: Registered) -> None:
        """Update spec and life from the store's answer. A store of version 0.1 does not send the life."""
        self._spec, self.life = now.spec, now.life or self.life
        self._known.keep_spec(self._spec, self.life)

    @property
    def spec(self) -> JobSpec:
        return self._spec

    # ------------------------------------------------------------------ beginning

    def ask(
        self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES, *, key: str | None = None
    ) -> Trial:
        """Open a trial in the store. If it is unreachable, begin one here with the default batch size."""
        stored = recurrence if recurrence is None or recurrence < ALONE else None
        try:
            if not self._is_registered:
                self._register()
            self._outbox.deliver(self._backend.begin)
            # Even without a key of the caller: a retry after a lost answer must not open a second trial.
            key = key or uuid4().hex
            trial, now = self._backend.ask(self._spec, gpus, stored, max_tries, key, self._backend.begin)
            self._is(now)
            self.hand(trial.number, trial.id)
        except StoreError as away:
            trial = self._begin_alone(gpus, recurrence)
            if self._is_registered:  # otherwise `register` has warned already
                log.warning("%s This trial takes the default batch size, %s.", away, trial.batch_size)
            return trial
        self._known.keep(self._spec.id, Mine(trial))
        return trial

    def _begin_alone(self, gpus: Gpus, recurrence: int | None) -> Trial:
        """Begin a trial without the store. It is the last try of its recurrence, so it has no cost limit."""
        number, size = ALONE + secrets.randbelow(ALONE), self._spec.default_batch_size
        ask = Ask(number=number, recurrence=recurrence or number, gpus=gpus, eta=self._spec.eta_knob, last=True)
        decision = Decision(size, Phase.DEFAULT, f"{size} is the default; the store could not be reached.")
        trial = Trial(ask=ask, decision=decision, asked=1)
        self._known.keep(self._spec.id, Mine(trial, key=uuid4().hex, spec=self._spec, life=self.life))
        return trial

    def hand(self, number: int, trial_id: str) -> None:
        self._ids[number] = trial_id

    # ------------------------------------------------------------------ on the way

    def trial(self, number: int) -> Trial:
        return self._look(number, soon())[0]

    def so_far(self, number: int) -> Outcome | None:
        return self._look(number, quick())[1]

    def _look(self, number: int, patience: Patience) -> tuple[Trial, Outcome | None]:
        """A trial as the store has it. The local copy counts if the store is unreachable or misses its end."""
        mine = self._mine(number)
        if mine is not None and (number >= ALONE or (mine.trial.ended is not None and not mine.is_heard)):
            return mine.trial, mine.so_far
        try:
            self._outbox.deliver(patience)
            return self._backend.trial(self._spec, self._which(number), patience)
        except StoreError:
            if mine is None:
                raise
            return mine.trial, mine.so_far

    def renew(self, number: int, so_far: Outcome | None = None) -> Trial:
        """Renew the lease. If the store is unreachable, nothing is raised: the next renewal may reach it."""
        return self._heartbeat(number, so_far).trial

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """Ask the policy whether to go on. If the store is unreachable, the trial's own cost limit decides."""
        return self._heartbeat(number, so_far, next_cost).go_on

    def _heartbeat(self, number: int, so_far: Outcome | None, next_cost: float | None = None) -> HeartbeatAnswer:
        lost(so_far)
        mine = self._mine(number)
        if mine is None or number < ALONE:
            try:
                self._outbox.deliver(quick())
                return self._backend.heartbeat(self._spec, self._which(number), so_far, next_cost, quick())
            except StoreError:
                if mine is None:
                    raise
                mine = self._mine(number) or mine  # the trial may have ended during the wait
        if so_far is not None and mine.trial.outcome is None:
            mine = replace(mine, so_far=so_far)
            self._known.keep(self._spec.id, mine)
        return HeartbeatAnswer(mine.trial, next_cost is None or fits(next_cost, mine.trial.decision.cost_limit))

    # ------------------------------------------------------------------ the end

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """Report how the trial ended. If the store is unreachable, the report is delivered later.

        Raises:
            StoreError: The store is unreachable, and either the report cannot be written to disk, or the trial was
                opened on another machine: the report waits, but the ended trial cannot be returned.
        """
        mine = self._mine(number)
        after = None if mine is None else told(self._spec.id, mine.trial, outcome, mine.trial.sequence + 1)
        if mine is not None and after is mine.trial:  # reported before
            return after
        sent = self._send_at_last(self._ending(number, mine, outcome))
        self._flush()
        match sent:
            case Heard(trial) if trial is not None and number < ALONE:
                return trial
            case Waits():
                waits = "the outcome of trial %s waits in %s until %s can be reached."
                log.warning(waits, number, self._outbox.spool.folder, self._backend.contact.name)
        if mine is None or after is None:
            raise StoreError(
                f"the store did not answer. The outcome of trial {number} waits in {self._outbox.spool.folder}."
            )
        self._known.keep(self._spec.id, replace(mine, trial=after))
        return after

    def _ending(self, number: int, mine: Mine | None, outcome: Outcome) -> Message:
        if mine is None or mine.key is None:
            return TrialEnded(self._spec.id, number, outcome, self._which(number).id)
        spec, life = (self._spec, self.life) if mine.spec is None else (mine.spec, mine.life)
        return OfflineRun(spec, mine.trial.ask.gpus, mine.trial.batch_size, mine.key, outcome, life)

    def _send_at_last(self, message: Message) -> Heard | Waits:
        """Send the message or write it to disk. If both fail, retry for some minutes: it cannot be measured again."""
        contact, limits, warned = self._backend.contact, time_limits(), False
        until = contact.clock() + limits.outcome_retry
        while True:
            try:
                return self._outbox.send(message, self._spec)
            except StoreError as wrong:
                if contact.clock() >= until:
                    raise StoreError(f"{wrong} This report is lost: {message}.") from wrong
                if not warned:
                    log.warning("%s Zeus retries for %g s to report how the trial ended.", wrong, limits.outcome_retry)
                warned = True
                contact.sleep(limits.outcome_pause)

    # ------------------------------------------------------------------ profiles and estimates

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """Report what an epoch uses. If the job is not registered yet, this is sent after the end of the trial."""
        used = EpochUsed(self._spec.id, batch_size, gpus, joules, seconds, self.life)
        if self._is_registered:
            self._outbox.send(used, self._spec, quick())
        else:
            self._later.append(used)

    def knowledge(self, trial: Trial) -> Knowledge:
        """What earlier trials tell about this one's epochs; nothing if the store is unreachable."""
        try:
            self._outbox.deliver(quick())
            return self._backend.knowledge(self._spec, trial, quick())
        except ZeusError:  # also raised for a trial that began without the store, whose number no service accepts
            return Knowledge()

    def excuse(self, numbers: Iterable[int]) -> None:
        self._outbox.deliver(soon())
        self._backend.excuse(Registered(self._spec, self.life), list(numbers), soon())

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of this key. None if the store is unreachable, so that it is measured again."""
        try:
            self._outbox.deliver(quick())
            return self._backend.profile(key, quick())
        except StoreError:
            return None

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size. None if the store is unreachable."""
        try:
            self._outbox.deliver(quick())
            known = self._backend.profiles(key.job, quick())
        except (NotKnown, StoreError):
            return None
        sizes = [one.batch_size for one in known if replace(one, batch_size=key.batch_size) == key]
        found = nearest(key.batch_size, set(sizes) & set(self._spec.batch_sizes))
        return known[replace(key, batch_size=found[0])] if found else None

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store a profile. If the store is unreachable, it is sent later."""
        self._outbox.send(ProfileMade(key, profile), self._spec, quick())

    # ------------------------------------------------------------------ inside

    def _which(self, number: int) -> Which:
        return Which(number, self._ids.get(number, ""))

    def _mine(self, number: int) -> Mine | None:
        """The local copy of a trial that was opened here, unless its id shows that another trial is meant."""
        mine, meant = self._known.trial(self._spec.id, number), self._ids.get(number)
        return None if mine is not None and meant and meant != mine.trial.id else mine

    def _flush(self) -> None:
        later, self._later = self._later, []
        for used in later:
            try:
                self._outbox.send(used, self._spec, quick())
            except ZeusError as lost:  # not worth an exception: the outcome, which matters more, was reported
                log.warning("what an epoch uses could be neither sent nor written to disk: %s", lost)


def _filled(spec: JobSpec, seen: JobSpec | None) -> JobSpec:
    """The spec with id and seed filled in, as the store would do."""
    seed = spec.mab_seed
    if seed is None:
        seed = secrets.randbelow(SEEDS) if seen is None else seen.mab_seed
    return replace(spec, job_id=spec.id, mab_seed=seed)
