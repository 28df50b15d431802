"""Energy and time side by side, and how far off a mean of few samples may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, unsafe_hash=True)  # a value; not frozen, as frozen ones take twice as long to make
class Amount:
    """Joules and seconds of something, or a factor or an error of both.

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
        """So many of it."""
        return Amount(self.joules * factor, self.seconds * factor)

    def hypot(self, other: Amount) -> Amount:
        """The error of a sum of two things with these errors, which have nothing to do with each other."""
        return Amount(math.hypot(self.joules, other.joules), math.hypot(self.seconds, other.seconds))

    def most(self, other: Amount) -> Amount:
        """The larger of each."""
        return Amount(max(self.joules, other.joules), max(self.seconds, other.seconds))

    def least(self, other: Amount) -> Amount:
        """The smaller of each."""
        return Amount(min(self.joules, other.joules), min(self.seconds, other.seconds))

    def each(self, function: Callable[[float], float]) -> Amount:
        """The function of each."""
        return Amount(function(self.joules), function(self.seconds))

    def within(self, share: float) -> bool:
        """Whether both are at most this."""
        return self.joules <= share and self.seconds <= share


ZERO = Amount()
ONE = Amount(1.0, 1.0)


def widening(freedom: int) -> float:
    """How much wider than two standard errors a 95 % interval is, where the scatter is known from few samples.

    Student's t, roughly. For one degree of freedom it would be 6.5, which is of no use to anybody.
    """
    return 2.2 if freedom <= 2 else 1 / (1 - 1.15 / freedom)
