"""A trial as the training that runs it speaks of it: whatever fails on the other side, the training goes on."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zeus.device.clock import REAL
from zeus.device.gpu import Clock, Ticker
from zeus.errors import InputError
from zeus.job import Ending, Outcome, Trial
from zeus.optimizer.batch_size.verbs import RENEW_SECONDS, Place, RecurringJob
from zeus.profile import PowerProfile, ProfileKey
from zeus.wire import dumps, to_json

log = logging.getLogger(__name__)

T = TypeVar("T")
NOTICEABLE = 0.05  # by which an epoch's use must differ to be told again


class RunningTrial:
    """One open trial. Nothing here raises: a store that does not answer is warned of once and asked again next time.

    Args:
        job: What the trial is of.
        trial: As it was opened.
        outcome_file: Where the outcome is left for a launcher where the store cannot be told.
    """

    def __init__(self, job: RecurringJob, trial: Trial, outcome_file: str | None = None) -> None:
        self.job = job
        self.trial = trial
        self._file = Path(outcome_file) if outcome_file else None
        self._warned = False
        self._profiled: tuple[float, float] | None = None
        self._so_far: Outcome | None = None
        self._renewing: Ticker | None = None

    def hold(self, clock: Clock = REAL) -> None:
        """Renew the lease until the trial is told of, where no launcher does it."""
        self._renewing = clock.every(RENEW_SECONDS, self._renew)

    def keep_going(self, so_far: Outcome, next_cost: float) -> bool | None:
        """The policy's word on the next epoch, after which the trial would have cost this; None: no answer."""
        self._so_far = so_far
        return self._try("go on?", lambda: self.job.progress(self.trial.number, so_far, next_cost))

    def profiled(self, joules: float, seconds: float) -> None:
        """What an epoch uses; told when it is first known, and when it has changed."""
        sound = all(math.isfinite(value) and value > 0 for value in (joules, seconds))
        if not sound or (self._profiled is not None and _close(self._profiled, (joules, seconds))):
            return
        ask = self.trial.ask
        where = Place(ask.gpu_model, 1, ask.max_watts)  # by the name that the trial's own cost is kept under
        size = self.trial.batch_size

        def tell() -> bool:
            self.job.profiled(size, where, joules=joules, seconds=seconds)
            return True

        if self._try("what an epoch uses", tell):
            self._profiled = joules, seconds

    def tell(self, outcome: Outcome) -> bool:
        """How the trial ended, and whether that stands. What was not heard is left in the outcome file."""
        self.let_go()
        try:
            self.trial = self.job.tell(self.trial.number, outcome)
            return True
        except InputError as refused:  # it was heard: another outcome stands, or the job is no more
            self._warn("how it ended", refused)
        except Exception as failed:
            self._warn("how it ended", failed)
            leave(outcome, self._file)
        return False

    def let_go(self) -> None:
        """Stop renewing."""
        if self._renewing is not None:
            renewing, self._renewing = self._renewing, None
            renewing.stop()

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of exactly this key."""
        return self._try("the power profile", lambda: self.job.get(key))

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep this power profile."""
        self._try("the power profile", lambda: self.job.put(key, profile))

    def _renew(self) -> None:
        self._try("still running", lambda: self.job.renew(self.trial.number, self._so_far))

    def _try(self, what: str, say: Callable[[], T]) -> T | None:
        try:
            return say()
        except Exception as failed:  # of a database, a network, a disk: the training matters more
            self._warn(what, failed)
            return None

    def _warn(self, what: str, failed: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        name, number = self.job.spec.id, self.trial.number
        log.log(level, "job %r, trial %s (%s): %s; the training goes on", name, number, what, failed)


def leave(outcome: Outcome, file: Path | None) -> None:
    """Write an outcome where a launcher looks for it. One that says LOST has it add how the process ended."""
    if file is None:
        return
    try:
        part = file.with_name(f".{file.name}.part")
        part.write_text(dumps(to_json(outcome)))
        part.replace(file)
    except OSError as failed:
        log.warning("the outcome %s could not be left in %s: %s", outcome, file, failed)


def used(
    ending: Ending,
    joules: float,
    seconds: float,
    *,
    epochs: int,
    metric: float | None = None,
    next_epoch_cost: float | None = None,
) -> Outcome:
    """An outcome of what was measured, where unknown energy is NaN and a metric may be.

    A trial of which not even one epoch fits is charged nothing, whatever setting up took.

    >>> used(Ending.LOST, math.nan, 2.0, epochs=1, metric=math.nan).joules is None
    True
    """
    if ending is Ending.STOPPED and not epochs:
        joules = seconds = 0.0
    known = math.isfinite(joules) and (joules > 0 or not epochs)
    return Outcome(
        ending=ending,
        joules=joules if known else None,
        seconds=max(seconds, 1e-9) if epochs else seconds,  # a virtual clock need not have moved
        epochs=epochs,
        metric=metric if metric is not None and math.isfinite(metric) else None,
        next_epoch_cost=next_epoch_cost if next_epoch_cost or not epochs else None,
    )


def _close(before: tuple[float, float], now: tuple[float, float]) -> bool:
    return all(abs(b - a) <= NOTICEABLE * a for a, b in zip(before, now, strict=True))
