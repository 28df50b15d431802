"""What a try was charged, and the one rule for what several tries used together."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.cost import CostModel
from zeus.job.amount import Amount
from zeus.job.trial import Kept, Outcome


@dataclass(frozen=True, slots=True)
class Spent:
    """Energy, time and cost of something, all of them known.

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
        """So many of it."""
        return Spent(self.joules * factor, self.seconds * factor, self.cost * factor)


def charge(use: Amount, eta: float, max_watts: float) -> Spent:
    """Energy and time, with what they cost."""
    return Spent(use.joules, use.seconds, CostModel(eta, max_watts).cost(use.joules, use.seconds))


def spent(outcome: Outcome | None, eta: float, max_watts: float) -> Spent | None:
    """What one try used; None where its energy is not known."""
    if outcome is None or outcome.joules is None:
        return None
    return charge(Amount(outcome.joules, outcome.seconds), eta, max_watts)


@dataclass(frozen=True, slots=True)
class Tally:
    """What some tries used together, one added after the other.

    A try whose energy is not known and that did no epoch adds nothing. After an epoch it did use something, and then
    nobody knows the total.

    >>> from zeus.job.trial import Ending
    >>> crash, lost = Outcome(ending=Ending.CRASHED), Outcome(ending=Ending.LOST, epochs=2, seconds=9.0)
    >>> done = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=3)
    >>> Tally().add(crash, 1.0, 250.0).add(done, 1.0, 250.0).total
    Spent(joules=100.0, seconds=1.0, cost=100.0)
    >>> both = Tally().add(lost, 1.0, 250.0).add(done, 1.0, 250.0)
    >>> both.total, both.known_joules, both.unknown
    (None, 100.0, 1)
    """

    known: Spent = Spent()  # of the tries that told their energy
    told: int = 0  # tries that did
    unknown: int = 0  # tries that did not
    owed: int = 0  # those of them that did an epoch

    def add(self, outcome: Outcome | None, eta: float, max_watts: float) -> Tally:
        """One more try that is over; None where it never told anything."""
        use = spent(outcome, eta, max_watts)
        if use is not None:
            return Tally(self.known + use, self.told + 1, self.unknown, self.owed)
        ran = outcome is not None and outcome.epochs > 0
        return Tally(self.known, self.told, self.unknown + 1, self.owed + ran)

    @property
    def total(self) -> Spent | None:
        """What all of them used; None where that is not known."""
        return self.known if self.told and not self.owed else None

    @property
    def known_joules(self) -> float | None:
        """What is known of their energy, be it all or not; None: nothing."""
        return self.known.joules if self.told else None


def overshoot(kept: Kept) -> float | None:
    """The cost of a try beyond its bound, both under the η it was decided for; None where one of them is not known."""
    bound, ask = kept.trial.decision.cost_limit, kept.trial.ask
    use = spent(kept.told, ask.eta, ask.max_watts)
    return None if use is None or bound is None else max(0.0, use.cost - bound)
