"""Energy and time as one value, and the error of a mean of few samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, unsafe_hash=True)  # a value, but not frozen: a frozen one takes twice as long to create
class Amount:
    """Joules and seconds: an amount used, or a factor or an error of each.

    >>> Amount(100.0, 2.0) * Amount(1.5, 0.5) + Amount(1.0, 1.0)
    Amount(joules=151.0, seconds=2.0)
    """

    joules: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.joules + other.joules, self.seconds + other.seconds)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.joules - other.joules, self.seconds - other.seconds)

    def __mul__(self, other: Amount) -> Amount:
        return Amount(self.joules * other.joules, self.seconds * other.seconds)

    def __truediv__(self, other: Amount) -> Amount:
        return Amount(self.joules / other.joules, self.seconds / other.seconds)

    def __abs__(self) -> Amount:
        return Amount(abs(self.joules), abs(self.seconds))

    def times(self, factor: float) -> Amount:
        return Amount(self.joules * factor, self.seconds * factor)

    def hypot(self, other: Amount) -> Amount:
        """The error of a sum whose two terms have these independent errors."""
        return Amount(math.hypot(self.joules, other.joules), math.hypot(self.seconds, other.seconds))

    def most(self, other: Amount) -> Amount:
        return Amount(max(self.joules, other.joules), max(self.seconds, other.seconds))

    def least(self, other: Amount) -> Amount:
        return Amount(min(self.joules, other.joules), min(self.seconds, other.seconds))

    def each(self, function: Callable[[float], float]) -> Amount:
        return Amount(function(self.joules), function(self.seconds))

    def within(self, share: float) -> bool:
        """Whether joules and seconds are both at most `share`."""
        return self.joules <= share and self.seconds <= share


ZERO = Amount()
ONE = Amount(1.0, 1.0)


def widening(freedom: int) -> float:
    """How much wider than two standard errors a 95 % interval is when the scatter comes from few samples.

    This approximates Student's t. For one degree of freedom t would give 6.5, which is too wide to be useful.
    """
    return 2.2 if freedom <= 2 else 1 / (1 - 1.15 / freedom)
