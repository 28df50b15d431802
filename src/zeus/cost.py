"""What a training is charged: Equations 1 to 3."""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.errors import InputError


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

    def rate(self, watts: float) -> float:
        """Equation 3: the cost accrued per second at this average power, in watts."""
        return self.eta * watts + (1 - self.eta) * self.max_watts
