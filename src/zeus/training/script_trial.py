"""The trial that a launcher has opened, as the training script sees it.

    terms ──▶ epoch ──▶ go on? ──▶ epoch ... ──▶ over ──▶ reported, or left in ZEUS_OUTCOME_FILE

The first rank asks and reports for all ranks. A store that does not answer never stops a training: then
ZEUS_COST_THRESH alone decides, and the outcome is left to the launcher.
"""

from __future__ import annotations

from zeus.cost import Use
from zeus.job import Ending, Outcome
from zeus.jobs.running import launched
from zeus.launcher_env import LauncherEnv
from zeus.optimizer.power_limit.launched_trial import LaunchedTrial
from zeus.trial.engine import AskPolicy


def open_report(orders: LauncherEnv) -> ScriptTrial | None:
    """The trial that a launcher has opened for this script, or None. Every rank must call this."""
    running = launched(orders)
    return None if running is None else ScriptTrial(running)


class ScriptTrial(LaunchedTrial):
    """Connects the loader to the trial."""

    def keep_going(self, question: AskPolicy) -> bool:
        """Whether the policy lets the training go on."""
        return True if self._trial is None else self._trial.answer(question)

    def tell_epoch(self, use: Use) -> None:
        if self._trial is not None:
            self._trial.tell_epoch(use)

    def over(self, outcome: Outcome) -> None:
        """Report the outcome of the run.

        If the loop was left by break or by an exception, only the exit code tells how the training ended. What it used
        is then left to the launcher, which sees the exit code.
        """
        if self._trial is not None:
            self._trial.leave(outcome) if outcome.ending is Ending.LOST else self._trial.tell(outcome)
