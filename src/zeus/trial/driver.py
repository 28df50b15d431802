"""Passes events to a trial's engine and carries out its actions."""

from __future__ import annotations

from collections.abc import Callable

from zeus.cost import Use
from zeus.job import Outcome
from zeus.trial.engine import AskPolicy, Event, Finish, PolicyAnswered, TellEpoch, TrialEngine


class Driver:
    """A trial's engine, with the functions that carry out its actions.

    Args:
        engine: The engine of the trial.
        ask: Asks the policy whether the trial may go on.
        tell_epoch: Called when the use of an epoch becomes known or changes.
        priced: Adds to the outcome what it cost in which hour.
    """

    def __init__(
        self,
        engine: TrialEngine,
        *,
        ask: Callable[[AskPolicy], bool] = lambda question: True,
        tell_epoch: Callable[[Use], None] = lambda use: None,
        priced: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    ) -> None:
        self.engine = engine
        self.outcome: Outcome | None = None  # set when the trial is over
        self._ask = ask
        self._tell_epoch = tell_epoch
        self.priced = priced

    @property
    def is_over(self) -> bool:
        return self.engine.ending is not None

    def feed(self, *events: Event) -> None:
        """Pass these events to the engine and carry out its actions."""
        for event in events:
            self.engine, actions = self.engine.handle(event)
            for action in actions:
                match action:
                    case AskPolicy():
                        self.feed(PolicyAnswered(self._ask(action)))
                    case TellEpoch(use):
                        self._tell_epoch(use)
                    case Finish(outcome):
                        self.outcome = self.priced(outcome)
