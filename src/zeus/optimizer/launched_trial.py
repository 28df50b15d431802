"""The trial that a launcher has opened for this script, on every rank.

    opened ──▶ epoch ──▶ go on? ──▶ epoch ... ──▶ over ──▶ reported, or left in ZEUS_OUTCOME_FILE

The first rank asks the store and reports for all ranks. A store that does not answer never stops a training: then
ZEUS_COST_THRESH alone decides, and the outcome is left to the launcher.
"""

from __future__ import annotations

from zeus.client.running import RunningTrial, launched
from zeus.cost import Use
from zeus.distributed.group import broadcast, rank_group
from zeus.job import Ending, JobSpec, Outcome, Trial
from zeus.launcher_env import LauncherEnv
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.engine import AskPolicy
from zeus.trial.knowledge import Knowledge, is_due


def launched_trial(orders: LauncherEnv) -> LaunchedTrial | None:
    """The trial that a launcher has opened for this script, or None. Every rank must call this."""
    running = launched(orders)
    return None if running is None else LaunchedTrial(running, orders)


class LaunchedTrial:
    """The trial, and as a `Profiles` the power profiles of its job, which only the first rank reads and keeps."""

    def __init__(self, trial: RunningTrial, orders: LauncherEnv) -> None:
        self.orders = orders
        self._running = trial if rank_group().writes else None
        told: tuple[JobSpec | None, Trial | None, Knowledge, Outcome | None] = None, None, Knowledge(), None
        if self._running is not None:
            told = trial.spec, trial.trial, trial.knowledge(), trial.so_far()
        self.spec, self.trial, self.known, self.so_far = broadcast(told)  # None: the store did not answer

    # ------------------------------------------------------------------ power profiles

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of this key. None if there is none, or if it is time to profile again."""
        kept = None if self._running is None else self._running.get(key)
        if kept is not None and kept.slices and is_due(self.known.trials, max(s.limit_watts for s in kept.slices)):
            return None
        return kept

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size."""
        return None if self._running is None else self._running.near(key)

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        if self._running is not None:
            self._running.put(key, profile)

    # ------------------------------------------------------------------ while it runs

    def keep_going(self, question: AskPolicy) -> bool:
        """Whether the policy lets the training go on."""
        return True if self._running is None else self._running.answer(question)

    def tell_epoch(self, use: Use) -> None:
        if self._running is not None:
            self._running.tell_epoch(use)

    def over(self, outcome: Outcome) -> None:
        """Report the outcome of the training.

        If its loop was left by break or by an exception, only the exit code tells how the training ended. What it used
        is then left to the launcher, which sees the exit code.
        """
        if self._running is not None:
            self._running.leave(outcome) if outcome.ending is Ending.LOST else self._running.tell(outcome)
