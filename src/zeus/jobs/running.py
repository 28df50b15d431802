"""A trial as the training that runs it speaks of it: whatever fails on the other side, the training goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from zeus.cost import Use, fits
from zeus.device.clock import REAL
from zeus.device.gpu import Clock, Ticker
from zeus.env import Orders
from zeus.errors import InputError
from zeus.files import write_whole
from zeus.job import Ending, JobSpec, Outcome, Trial
from zeus.job.wire import dumps, to_json
from zeus.jobs.api import RENEW_SECONDS, RecurringJob
from zeus.jobs.catalog import open_jobs
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.engine import AskPolicy
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

T = TypeVar("T")
NOTICEABLE = 0.05  # by which an epoch's use must differ to be told again


class RunningTrial:
    """One open trial. Nothing here raises: a store that does not answer is warned of once and asked again next time.

    Args:
        job_id: What the trial is of.
        number: The trial's.
        find: Finds the job when it is first needed. One that was not found is looked for again after each epoch and
            at the end, not more often: not to be answered may take minutes.
        cost_limit: What the trial may cost where the policy cannot be asked.
        outcome_file: Where the outcome is left for a launcher where the store cannot be told.
    """

    def __init__(
        self,
        job_id: str,
        number: int,
        find: Callable[[], RecurringJob],
        *,
        cost_limit: float | None = None,
        outcome_file: str | None = None,
    ) -> None:
        self.job_id, self.number = job_id, number
        self._find = find
        self._job: RecurringJob | None = None
        self._trial: Trial | None = None
        self._limit = cost_limit
        self._file = Path(outcome_file) if outcome_file else None
        self._warned = False
        self._profiled: Use | None = None
        self._so_far: Outcome | None = None
        self._renewing: Ticker | None = None

    @property
    def spec(self) -> JobSpec | None:
        """The job's; None where it cannot be asked."""
        return self._try("its job", lambda job: job.spec)

    @property
    def trial(self) -> Trial | None:
        """As it was opened; None where the store cannot be asked."""
        if self._trial is None:
            self._trial = self._try("itself", lambda job: job.trial(self.number))
        return self._trial

    def hold(self, clock: Clock = REAL) -> None:
        """Renew the lease until the trial is told of, where no launcher does it."""
        self._renewing = clock.every(RENEW_SECONDS, self._renew)

    def knowledge(self) -> Knowledge:
        """What is known of its epochs before it begins."""
        trial = self.trial
        found = None if trial is None else self._try("its epochs", lambda job: job.knowledge(trial))
        return found or Knowledge()

    def answer(self, question: AskPolicy) -> bool:
        """The policy's word on going on; else the cost limit's."""
        self._so_far = question.so_far
        ask = question.so_far, question.cost
        word = self._try("go on?", lambda job: job.progress(self.number, *ask), again=True)
        return fits(question.cost, self._limit) if word is None else word

    def tell_epoch(self, use: Use) -> None:
        """What an epoch uses; told when it is first known, and when it has changed."""
        joules, seconds = use
        sound = all(math.isfinite(value) and value > 0 for value in (joules, seconds))
        if not sound or is_alike(self._profiled, use):
            return
        trial = self.trial
        if trial is None:
            return

        def tell(job: RecurringJob) -> bool:
            job.profiled(trial.batch_size, trial.ask.gpus, joules=joules, seconds=seconds)
            return True

        if self._try("what an epoch uses", tell):
            self._profiled = use

    def tell(self, outcome: Outcome) -> None:
        """How the trial ended. What was not heard is left in the outcome file."""
        self.let_go()

        def tell(job: RecurringJob) -> bool:
            try:
                job.tell(self.number, outcome)
            except InputError as refused:  # it was heard: another outcome stands, or the job is no more
                self._warn("how it ended", refused)
            return True

        if not self._try("how it ended", tell, again=True):
            self.leave(outcome)

    def end(self, outcome: Outcome | None, *, crashed: bool) -> None:
        """Training has failed: it crashed, or nobody knows, which a launcher that looks on finds out."""
        outcome = outcome or Outcome(ending=Ending.CRASHED if crashed else Ending.LOST)
        self.leave(outcome) if self._file is not None and outcome.ending is Ending.LOST else self.tell(outcome)

    def leave(self, outcome: Outcome) -> None:
        """Write an outcome where a launcher looks for it. One that says LOST has it add how the process ended."""
        self.let_go()
        if self._file is None:
            return
        try:
            write_whole(self._file, dumps(to_json(outcome)))
        except OSError as failed:
            log.warning("the outcome %s could not be left in %s: %s", outcome, self._file, failed)

    def let_go(self) -> None:
        """Stop renewing."""
        if self._renewing is not None:
            renewing, self._renewing = self._renewing, None
            renewing.stop()

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of exactly this key."""
        return self._try("the power profile", lambda job: job.get(key))

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of the nearest other batch size."""
        return self._try("another's power profile", lambda job: job.near(key))

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep this power profile."""
        self._try("the power profile", lambda job: job.put(key, profile))

    # ------------------------------------------------------------------ the other side

    def _renew(self) -> None:
        self._try("still running", lambda job: job.renew(self.number, self._so_far))

    def _try(self, what: str, say: Callable[[RecurringJob], T], again: bool = False) -> T | None:
        if self._job is None and self._warned and not again:
            return None
        try:
            self._job = self._job or self._find()
            return say(self._job)
        except Exception as failed:  # of a database that is away or not installed, a network, a disk
            self._warn(what, failed)
            return None

    def _warn(self, what: str, failed: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        log.log(level, "job %r, trial %s (%s): %s; training goes on", self.job_id, self.number, what, failed)


def launched(told: Orders) -> RunningTrial | None:
    """The trial that a launcher has opened for this script; None where none has."""
    if told.job_id is None or told.trial is None:
        return None
    job_id, number = told.job_id, told.trial
    jobs = cache(open_jobs)  # opened once, so that one that is away is waited for once

    def find() -> RecurringJob:
        job = jobs().find(job_id)
        if told.trial_id is not None:
            job.hand(number, told.trial_id)
        return job

    return RunningTrial(job_id, number, find, cost_limit=told.cost_limit, outcome_file=told.outcome_file)


def is_alike(before: Use | None, now: Use) -> bool:
    """Whether what an epoch uses has not changed so much that it is worth telling again."""
    return before is not None and all(abs(b - a) <= NOTICEABLE * a for a, b in zip(before, now, strict=True))
