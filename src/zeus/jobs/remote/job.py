"""A recurring job whose store or service need not be there: a training goes on, and nothing that it says is lost.

    the store is away    a run that begins takes the default batch size, with no bound
                         a run that goes on hears its own cost limit
                         what is told waits on disk, and is delivered at the next contact

A trial that began without the store has a number that no store ever gives; it is known there, as a recurrence of its
own, once its message has arrived.
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
from zeus.jobs.remote.retry import QUICK, SOON, Patience
from zeus.profile import PowerProfile, ProfileKey, nearest
from zeus.store.rules import lost, told
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

SEEDS = 2**31
END_SECONDS = 300.0  # for which what can be neither told nor kept is tried again: the training is over by then
AGAIN_SECONDS = 5.0


class ResilientJob:
    """A `RecurringJob` over an outbox."""

    def __init__(
        self, outbox: Outbox, spec: JobSpec, *, is_registered: bool, life: str = "", void: bool = False
    ) -> None:
        self._outbox, self._backend, self._known = outbox, outbox.backend, outbox.known
        self._spec = spec
        self.life = life
        self._void = void  # whether registering may leave trials out of account
        self._ids: dict[int, str] = {}  # of trials that were opened here, or handed over
        self._is_registered = is_registered  # as far as is known here
        self._later: list[EpochUsed] = []  # for when it is

    @classmethod
    def find(cls, outbox: Outbox, job_id: str) -> ResilientJob:
        """A job that is registered there, or is known here and cannot be yet."""
        seen = outbox.known.spec(job_id)
        patience = outbox.backend.begin if seen is None else SOON
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
        """The job of this spec, made or revised; where the store is away, when it is back."""
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
        """As the store has it now; one of version 0.1 does not say its life."""
        self._spec, self.life = now.spec, now.life or self.life
        self._known.keep_spec(self._spec, self.life)

    @property
    def spec(self) -> JobSpec:
        """As registered, as far as the store could be asked."""
        return self._spec

    # ------------------------------------------------------------------ beginning

    def ask(self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES) -> Trial:
        """A trial that the store opens; one of the default batch size where it is away."""
        known = recurrence if recurrence is None or recurrence < ALONE else None
        try:
            if not self._is_registered:
                self._register()
            self._outbox.deliver(self._backend.begin)
            trial, now = self._backend.ask(self._spec, gpus, known, max_tries, self._backend.begin)
            self._is(now)
            self.hand(trial.number, trial.id)
        except StoreError as away:
            trial = self._begin_alone(gpus, recurrence)
            if self._is_registered:  # else it was said
                log.warning("%s This trial takes the default batch size, %s.", away, trial.batch_size)
            return trial
        self._known.keep(self._spec.id, Mine(trial))
        return trial

    def _begin_alone(self, gpus: Gpus, recurrence: int | None) -> Trial:
        """Its recurrence has no other try: the default with no bound ends it as well as can be."""
        number, size = ALONE + secrets.randbelow(ALONE), self._spec.default_batch_size
        ask = Ask(number=number, recurrence=recurrence or number, gpus=gpus, eta=self._spec.eta_knob, last=True)
        decision = Decision(size, Phase.DEFAULT, f"{size}, the default: the store is away")
        trial = Trial(ask=ask, decision=decision, asked=1)
        self._known.keep(self._spec.id, Mine(trial, key=uuid4().hex, spec=self._spec, life=self.life))
        return trial

    def hand(self, number: int, trial_id: str) -> None:
        """Remembered."""
        self._ids[number] = trial_id

    # ------------------------------------------------------------------ on the way

    def trial(self, number: int) -> Trial:
        """As it stands."""
        return self._look(number, SOON)[0]

    def so_far(self, number: int) -> Outcome | None:
        """As last renewed."""
        return self._look(number, QUICK)[1]

    def _look(self, number: int, patience: Patience) -> tuple[Trial, Outcome | None]:
        """The store's word, or ours where it has not heard ours or is away."""
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
        """Hold on to it; where the store is away, the next renewal may reach it."""
        return self._heartbeat(number, so_far).trial

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """The policy's word; where the store is away, that of the trial's own bound."""
        return self._heartbeat(number, so_far, next_cost).go_on

    def _heartbeat(self, number: int, so_far: Outcome | None, next_cost: float | None = None) -> HeartbeatAnswer:
        lost(so_far)
        mine = self._mine(number)
        if mine is None or number < ALONE:
            try:
                self._outbox.deliver(QUICK)
                return self._backend.heartbeat(self._spec, self._which(number), so_far, next_cost, QUICK)
            except StoreError:
                if mine is None:
                    raise
                mine = self._mine(number) or mine  # it may have ended while this was waited for
        if so_far is not None and mine.trial.outcome is None:
            mine = replace(mine, so_far=so_far)
            self._known.keep(self._spec.id, mine)
        return HeartbeatAnswer(mine.trial, next_cost is None or fits(next_cost, mine.trial.decision.cost_limit))

    # ------------------------------------------------------------------ the end

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """How it ended; delivered later where the store is away.

        Raises:
            StoreError: The store is away, and either nothing can be written here or the trial is another machine's,
                so that all that can be said of it is that its end waits.
        """
        mine = self._mine(number)
        after = None if mine is None else told(self._spec.id, mine.trial, outcome, mine.trial.sequence + 1)
        if mine is not None and after is mine.trial:  # it was told before
            return after
        sent = self._send_at_last(self._ending(number, mine, outcome))
        self._flush()
        match sent:
            case Heard(trial) if trial is not None and number < ALONE:
                return trial
            case Waits():
                waits = "how trial %s ended waits in %s for the next contact with %s."
                log.warning(waits, number, self._outbox.spool.folder, self._backend.contact.name)
        if mine is None or after is None:
            raise StoreError(f"how trial {number} ended waits in {self._outbox.spool.folder} for its store.")
        self._known.keep(self._spec.id, replace(mine, trial=after))
        return after

    def _ending(self, number: int, mine: Mine | None, outcome: Outcome) -> Message:
        if mine is None or mine.key is None:
            return TrialEnded(self._spec.id, number, outcome, self._which(number).id)
        spec, life = (self._spec, self.life) if mine.spec is None else (mine.spec, mine.life)
        return OfflineRun(spec, mine.trial.ask.gpus, mine.trial.batch_size, mine.key, outcome, life)

    def _send_at_last(self, message: Message) -> Heard | Waits:
        """Told or kept. Where neither can be, store and disk are given some minutes: nobody measures it again."""
        contact, warned = self._backend.contact, False
        until = contact.clock() + END_SECONDS
        while True:
            try:
                return self._outbox.send(message, self._spec)
            except StoreError as wrong:
                if contact.clock() >= until:
                    raise StoreError(f"{wrong} Nobody heard of this: {message}.") from wrong
                if not warned:
                    log.warning("%s How the trial ended is tried again for %g s.", wrong, END_SECONDS)
                warned = True
                contact.sleep(AGAIN_SECONDS)

    # ------------------------------------------------------------------ what is learnt besides

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """What an epoch uses; said after the end of the trial where the job may not be registered yet."""
        used = EpochUsed(self._spec.id, batch_size, gpus, joules, seconds, self.life)
        if self._is_registered:
            self._outbox.send(used, self._spec, QUICK)
        else:
            self._later.append(used)

    def knowledge(self, trial: Trial) -> Knowledge:
        """Gathered there; nothing where the store is away, so that the trial's own epochs tell."""
        try:
            self._outbox.deliver(QUICK)
            return self._backend.knowledge(self._spec, trial, QUICK)
        except ZeusError:  # also one that began alone, whose number no service takes
            return Knowledge()

    def excuse(self, numbers: Iterable[int]) -> None:
        """A revision of the job there."""
        self._outbox.deliver(SOON)
        self._backend.excuse(Registered(self._spec, self.life), list(numbers), SOON)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key; None where the store is away, so that it is measured again."""
        try:
            self._outbox.deliver(QUICK)
            return self._backend.profile(key, QUICK)
        except StoreError:
            return None

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """Of the job's other sizes; None where the store is away."""
        try:
            self._outbox.deliver(QUICK)
            known = self._backend.profiles(key.job, QUICK)
        except (NotKnown, StoreError):
            return None
        sizes = [one.batch_size for one in known if replace(one, batch_size=key.batch_size) == key]
        found = nearest(key, set(sizes) & set(self._spec.batch_sizes))
        return known[replace(key, batch_size=found[0])] if found else None

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep a profile; later where the store is away."""
        self._outbox.send(ProfileMade(key, profile), self._spec, QUICK)

    # ------------------------------------------------------------------ inside

    def _which(self, number: int) -> Which:
        return Which(number, self._ids.get(number, ""))

    def _mine(self, number: int) -> Mine | None:
        """The trial that was opened here, if it is the one that is meant."""
        mine, meant = self._known.trial(self._spec.id, number), self._ids.get(number)
        return None if mine is not None and meant and meant != mine.trial.id else mine

    def _flush(self) -> None:
        later, self._later = self._later, []
        for used in later:
            try:
                self._outbox.send(used, self._spec, QUICK)
            except ZeusError as lost:  # how the trial ended matters more, and that was said
                log.warning("what an epoch uses could be neither told nor kept: %s", lost)


def _filled(spec: JobSpec, seen: JobSpec | None) -> JobSpec:
    """With an id and a seed, as the store would have it."""
    seed = spec.mab_seed
    if seed is None:
        seed = secrets.randbelow(SEEDS) if seen is None else seen.mab_seed
    return replace(spec, job_id=spec.id, mab_seed=seed)
