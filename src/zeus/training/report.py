"""What a training under `zeus run` hears from its job and tells it (Journey 3): the script's side of a trial.

    terms ──▶ epoch ──▶ go on? ──▶ epoch ... ──▶ over ──▶ told, or left in ZEUS_OUTCOME_FILE

The first rank speaks for all, and all hear the same. A store that does not answer never stops a training: then
ZEUS_COST_THRESH alone decides, and how the training ended is left to the launcher.
"""

from __future__ import annotations

import math

from zeus import job
from zeus.env import Orders
from zeus.optimizer.batch_size.running import launched, used
from zeus.optimizer.launched import LaunchedTrial
from zeus.training.summary import Ending, Standing, Summary

TOLD = {
    Ending.REACHED: job.Ending.CONVERGED,
    Ending.MAX_EPOCHS: job.Ending.NOT_CONVERGED,
    Ending.COST_LIMIT: job.Ending.STOPPED,
}


def open_report(told: Orders) -> Report | None:
    """The report on the trial that a launcher has opened for this script; None where none has. Every rank must ask."""
    running = launched(told)
    return None if running is None else Report(running)


class Report(LaunchedTrial):
    """A training's end of the line."""

    def keep_going(self, standing: Standing) -> bool:
        """The policy's word on the next epoch."""
        if self._trial is None:
            return True
        if standing.settled:
            self._trial.profiled(standing.following.joules, standing.following.seconds)
        spent = standing.spent
        so_far = used(job.Ending.LOST, spent.joules, spent.seconds, epochs=standing.epochs, metric=standing.metric)
        return self._trial.keep_going(so_far, standing.next_cost)

    def over(self, summary: Summary) -> None:
        """The run has ended.

        A loop that was left before the target, by break or by an exception, has not said how it ended: its exit code
        will. What it used is left to the launcher, which sees that.
        """
        if self._trial is None:
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
        self._trial.tell(outcome) if summary.ending in TOLD else self._trial.leave(outcome)
