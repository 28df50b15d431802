"""The trial that a launcher has opened, as the training script sees it (Journey 3).

    terms ──▶ epoch ──▶ go on? ──▶ epoch ... ──▶ over ──▶ told, or left in ZEUS_OUTCOME_FILE

The first rank speaks for all, and all hear the same. A store that does not answer never stops a training: then
ZEUS_COST_THRESH alone decides, and how the training ended is left to the launcher.
"""

from __future__ import annotations

from zeus.cost import Use
from zeus.env import Orders
from zeus.job import Ending, Outcome
from zeus.jobs.running import launched
from zeus.optimizer.power_limit.launched_trial import LaunchedTrial
from zeus.trial.engine import AskPolicy


def open_report(told: Orders) -> ScriptTrial | None:
    """The report on the trial that a launcher has opened for this script; None where none has. Every rank must ask."""
    running = launched(told)
    return None if running is None else ScriptTrial(running)


class ScriptTrial(LaunchedTrial):
    """What the loader hears from the trial and tells it."""

    def keep_going(self, question: AskPolicy) -> bool:
        """The policy's word on going on."""
        return True if self._trial is None else self._trial.answer(question)

    def tell_epoch(self, use: Use) -> None:
        """What an epoch uses."""
        if self._trial is not None:
            self._trial.tell_epoch(use)

    def over(self, outcome: Outcome) -> None:
        """The run has ended.

        A loop that was left before the target, by break or by an exception, has not said how it ended: its exit code
        will. What it used is left to the launcher, which sees that.
        """
        if self._trial is not None:
            self._trial.leave(outcome) if outcome.ending is Ending.LOST else self._trial.tell(outcome)
