"""The cost of one trial, and the one rule for adding up several trials."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from zeus.cost import CostModel, Use
from zeus.job.trial import Outcome, Trial, TrialRecord


class Spent(msgspec.Struct, frozen=True):
    """Energy, time and cost, all of them known.

    >>> Spent(3.0, 2.0, 1.0) + Spent(1.0, 1.0, 1.0) - Spent(2.0, 2.0, 2.0)
    Spent(joules=2.0, seconds=1.0, cost=0.0)
    """

    joules: float = 0.0
    seconds: float = 0.0
    cost: float = 0.0  # Equation 2, in joules

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.joules + other.joules, self.seconds + other.seconds, self.cost + other.cost)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.joules - other.joules, self.seconds - other.seconds, self.cost - other.cost)

    def times(self, factor: float) -> Spent:
        return Spent(self.joules * factor, self.seconds * factor, self.cost * factor)


def charge(use: Use, eta: float, max_watts: float) -> Spent:
    """This energy and time, with their cost."""
    return Spent(use.joules, use.seconds, _model(eta, max_watts).of(use))


@lru_cache(maxsize=64)  # few jobs and GPUs, many trials
def _model(eta: float, max_watts: float) -> CostModel:
    return CostModel(eta, max_watts)


def spent(outcome: Outcome | None, eta: float, max_watts: float) -> Spent | None:
    """What one trial used; None if its energy is unknown."""
    if outcome is None or outcome.joules is None:
        return None
    return charge(Use(outcome.joules, outcome.seconds), eta, max_watts)


def cost_of(trial: Trial, eta: float) -> float | None:
    """Equation 2 for this trial alone, in joules; None if its energy is unknown."""
    use = spent(trial.outcome, eta, trial.ask.max_watts)
    return None if use is None else use.cost


class Tally(msgspec.Struct, frozen=True):
    """A running total over several trials.

    A trial of unknown energy that did no epoch adds nothing. If it did an epoch, it used something, and the total is
    unknown.

    >>> from zeus.job.trial import Ending
    >>> crash, lost = Outcome(ending=Ending.CRASHED), Outcome(ending=Ending.LOST, epochs=2, seconds=9.0)
    >>> done = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3)
    >>> Tally().add(crash, 1.0, 250.0).add(done, 1.0, 250.0).total
    Spent(joules=100.0, seconds=1.0, cost=100.0)
    >>> both = Tally().add(lost, 1.0, 250.0).add(done, 1.0, 250.0)
    >>> both.total, both.known_joules, both.unknown
    (None, 100.0, 1)
    """

    known: Spent = Spent()  # sum over the trials that reported their energy
    reported: int = 0  # trials that reported it
    unknown: int = 0  # trials that did not
    owed: int = 0  # those of `unknown` that did an epoch

    def add(self, outcome: Outcome | None, eta: float, max_watts: float) -> Tally:
        """The total with one more trial; its outcome is None if it never reported anything."""
        return self.plus(spent(outcome, eta, max_watts), ran=outcome is not None and outcome.epochs > 0)

    def plus(self, use: Spent | None, *, ran: bool) -> Tally:
        """The total with one more trial of this use; None if it is unknown. `ran`: whether it did an epoch."""
        if use is not None:
            return Tally(self.known + use, self.reported + 1, self.unknown, self.owed)
        return Tally(self.known, self.reported, self.unknown + 1, self.owed + ran)

    @property
    def total(self) -> Spent | None:
        """What all trials used; None if that is unknown."""
        return self.known if self.reported and not self.owed else None

    @property
    def known_joules(self) -> float | None:
        """The energy that was reported, which may be only a part; None if none was."""
        return self.known.joules if self.reported else None


def overshoot(record: TrialRecord) -> float | None:
    """The cost of a trial beyond its bound, under the η it was decided for; None if either is unknown."""
    bound, ask = record.trial.decision.cost_limit, record.trial.ask
    use = spent(record.latest_outcome, ask.eta, ask.max_watts)
    return None if use is None or bound is None else max(0.0, use.cost - bound)
