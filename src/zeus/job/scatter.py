"""How much samples scatter around their mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.cost import ZERO, Use


@dataclass(frozen=True, slots=True)
class Scatter:
    """Squared deviations of samples from the mean of their group, summed over one or more groups.

    >>> few = Scatter.of([Use(9.0, 1.0), Use(11.0, 1.0)])
    >>> (few + few + few + few).deviation.seconds, few.freedom, Scatter().deviation
    (0.0, 1, None)
    """

    squares: Use = ZERO
    freedom: int = 0  # samples less groups

    @classmethod
    def of(cls, samples: Sequence[Use]) -> Scatter:
        """The scatter of one group, which may be empty."""
        if not samples:
            return cls()
        mean = sum(samples, ZERO).times(1 / len(samples))
        return cls(sum(((one - mean) * (one - mean) for one in samples), ZERO), len(samples) - 1)

    def __add__(self, other: Scatter) -> Scatter:
        return Scatter(self.squares + other.squares, self.freedom + other.freedom)

    @property
    def deviation(self) -> Use | None:
        """Standard deviation of one sample, widened if few samples show it; None if no group has two."""
        root = self.root
        return None if root is None else root.times(_widening(self.freedom))

    @property
    def root(self) -> Use | None:
        """The same, not widened: the root of the mean square."""
        return self.squares.times(1 / self.freedom).each(math.sqrt) if self.freedom else None


def _widening(freedom: int) -> float:
    """How much wider than two standard errors a 95 % interval is when the scatter comes from few samples.

    This approximates Student's t. For one degree of freedom t would give 6.5, which is too wide to be useful.
    """
    return 2.2 if freedom <= 2 else 1 / (1 - 1.15 / freedom)
