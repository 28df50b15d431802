"""Feeds a trial's engine and carries out what it answers: the same few lines for every shell."""

from __future__ import annotations

from collections.abc import Callable

from zeus.cost import Use
from zeus.job import Outcome
from zeus.trial.engine import AskPolicy, Event, Finish, PolicySaid, TellEpoch, TrialEngine


class Driver:
    """An engine and whoever is asked.

    Args:
        engine: The trial.
        ask: The policy's word on going on.
        tell_epoch: Told what an epoch uses.
    """

    def __init__(
        self,
        engine: TrialEngine,
        *,
        ask: Callable[[AskPolicy], bool] = lambda question: True,
        tell_epoch: Callable[[Use], None] = lambda use: None,
    ) -> None:
        self.engine = engine
        self.outcome: Outcome | None = None  # once it is over
        self._ask = ask
        self._tell_epoch = tell_epoch

    @property
    def is_over(self) -> bool:
        """Whether the trial has ended."""
        return self.engine.ending is not None

    def feed(self, *events: Event) -> None:
        """Tell the engine, and do what it says."""
        for event in events:
            self.engine, actions = self.engine.handle(event)
            for action in actions:
                match action:
                    case AskPolicy():
                        self.feed(PolicySaid(self._ask(action)))
                    case TellEpoch(use):
                        self._tell_epoch(use)
                    case Finish(outcome):
                        self.outcome = outcome
