"""What a training is charged: Equations 1 to 3."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from zeus.errors import InputError

# Joules, seconds and watts beyond these are not real; within them no square, sum or ratio of two overflows.
LEAST, MOST = 1e-9, 1e18


class Use(NamedTuple):
    """Energy and time of some training, on all its GPUs together. Energy that is not known is NaN.

    >>> Use(5.0, 2.0).plus(Use(1.0, 1.0)).minus(Use(2.0, 1.0)).times(2)
    Use(joules=8.0, seconds=4.0)
    """

    joules: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Use) -> Use:
        """Both together."""
        return Use(self.joules + other.joules, self.seconds + other.seconds)

    def minus(self, part: Use) -> Use:
        """What is left without a part of it."""
        return Use(self.joules - part.joules, self.seconds - part.seconds)

    def times(self, factor: float) -> Use:
        """So many of it."""
        return Use(self.joules * factor, self.seconds * factor)

    @property
    def is_known(self) -> bool:
        """Whether its energy is."""
        return math.isfinite(self.joules)


SLACK = 1e-9  # so that with β = 1 rounding does not lock out a best size without noise


def ceiling(limit: float | None) -> float:
    """The highest cost within a bound."""
    return math.inf if limit is None else limit * (1 + SLACK)


def fits(cost: float, limit: float | None) -> bool:
    """Whether a cost is within a bound; with none it always is."""
    return not cost > ceiling(limit)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The user's preference η between energy and time, and MAXPOWER, which makes watts of both.

    `max_watts` is the highest limit that the cards support, summed over all GPUs of the job, so that η means the same
    on any number of them.

    >>> CostModel(eta=0.5, max_watts=250).cost(joules=1000, seconds=10)
    1750.0
    """

    eta: float
    max_watts: float

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise InputError(f"eta={self.eta!r}: give a number from 0 (only time counts) to 1 (only energy counts).")
        if not (self.max_watts > 0 and math.isfinite(self.max_watts)):
            raise InputError(
                f"max_watts={self.max_watts!r}: give the summed highest power limit of the GPUs, in watts."
            )

    def cost(self, joules: float, seconds: float) -> float:
        """Equation 2: the cost of a run that used this energy and time, in joules."""
        return self.eta * joules + (1 - self.eta) * self.max_watts * seconds

    def of(self, use: Use) -> float:
        """Equation 2 for this use; NaN where its energy is not known."""
        return self.cost(use.joules, use.seconds)

    def rate(self, watts: float) -> float:
        """Equation 3: the cost accrued per second at this average power, in watts."""
        return self.eta * watts + (1 - self.eta) * self.max_watts
