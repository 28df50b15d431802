"""What a training under `zeus run` hears from its job and tells it (Journey 3): the script's side of a trial.

    terms ──▶ epoch ──▶ go on? ──▶ epoch ... ──▶ over ──▶ told, or left in ZEUS_OUTCOME_FILE

The first rank speaks for all, and all hear the same. A store that does not answer never stops a training: then
ZEUS_COST_THRESH alone decides, and how the training ended is left to the launcher.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zeus import job
from zeus.env import Orders
from zeus.optimizer.batch_size.running import RunningTrial, leave, used
from zeus.optimizer.ranks import broadcast, crew
from zeus.profile import PowerProfile, ProfileKey
from zeus.training.summary import Ending, Standing, Summary

log = logging.getLogger(__name__)

TOLD = {
    Ending.REACHED: job.Ending.CONVERGED,
    Ending.MAX_EPOCHS: job.Ending.NOT_CONVERGED,
    Ending.COST_LIMIT: job.Ending.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What the job says that the environment does not."""

    power_limits: tuple[float, ...]
    higher_is_better: bool
    max_watts: float  # MAXPOWER, as the trial was asked for


def open_report(told: Orders) -> Report | None:
    """The trial that a launcher has opened for this script; None where none has. Every rank must ask."""
    return None if told.job_id is None or told.trial is None else Report(told.job_id, told.trial, told.outcome_file)


class Report:
    """A training's end of the line. It is a `Profiles` too: the store's, in place of a folder."""

    def __init__(self, job_id: str, trial: int, outcome_file: str | None = None) -> None:
        self._job_id, self._number, self._file = job_id, trial, outcome_file
        ranks = crew()
        self._alone = ranks.size == 1
        self._speaks = ranks.writes
        self._running: RunningTrial | None = None
        self._warned = False
        self.terms: Terms | None = broadcast(self._terms())  # None: the store could not be asked

    def keep_going_or(self, otherwise: Callable[[Standing], bool] | None) -> Callable[[Standing], bool]:
        """The policy's word on the next epoch, or `otherwise` where it is not heard."""

        def keep_going(standing: Standing) -> bool:
            spent, running = standing.spent, self._reach()
            answer: bool | None = None
            if running is not None:
                if standing.settled:
                    running.profiled(standing.following.joules, standing.following.seconds)
                lost, done = job.Ending.LOST, standing.epochs
                so_far = used(lost, spent.joules, spent.seconds, epochs=done, metric=standing.metric)
                answer = running.keep_going(so_far, standing.next_cost)
            if answer is None:
                answer = otherwise is None or otherwise(standing)
            return answer

        return keep_going

    def over(self, summary: Summary) -> None:
        """The run has ended.

        A loop that was left before the target, by break or by an exception, has not said how it ended: its exit code
        will. What it used is left to the launcher, which sees that.
        """
        if not self._speaks:
            return
        known = self._alone or summary.ending is not Ending.LEFT  # else of this rank's GPUs alone
        outcome = used(
            TOLD.get(summary.ending, job.Ending.LOST),
            summary.joules if known else math.nan,
            summary.seconds,
            epochs=summary.epochs,
            metric=summary.metric,
            next_epoch_cost=summary.next_epoch_cost,
        )
        if summary.ending in TOLD and (running := self._reach()) is not None:
            running.tell(outcome)
        else:
            leave(outcome, Path(self._file) if self._file else None)

    # ------------------------------------------------------------------ profiles

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key, the same on every rank."""
        return broadcast(self._running.get(key) if self._running is not None else None)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep it."""
        if (running := self._reach()) is not None:
            running.put(key, profile)

    # ------------------------------------------------------------------ inside

    def _terms(self) -> Terms | None:
        running = self._reach()
        if running is None:
            return None
        spec = running.job.spec
        return Terms(spec.power_limits, spec.higher_is_better_metric, running.trial.ask.max_watts)

    def _reach(self) -> RunningTrial | None:
        """The trial; a store that did not answer is asked again, for it may be back."""
        if self._running is None and self._speaks:
            try:
                from zeus.optimizer.batch_size.find import find_job

                known = find_job(self._job_id)
                self._running = RunningTrial(known, known.trial(self._number), self._file)
            except Exception as failed:  # a database that is away or not installed: the training matters more
                level = logging.DEBUG if self._warned else logging.WARNING
                self._warned = True
                log.log(level, "job %r cannot be reached, so this training goes on alone: %s", self._job_id, failed)
        return self._running
