"""Algorithms 1 and 2: Gaussian Thompson sampling over the mean cost of each batch size.

A belief is kept as mean and precision (1/variance): the flat prior is then plain zero, and posteriors add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from zeus.errors import InputError


class Rng(Protocol):
    """Chance, as `random.Random` gives it."""

    def gauss(self, mu: float, sigma: float) -> float:
        """One draw from a normal distribution."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was observed, as far as a Gaussian needs it: how often, the mean, the squares about the mean.

    >>> Sample.of([1.0, 3.0])
    Sample(count=2, mean=2.0, squares=2.0)
    >>> Sample.of([1.0, 3.0]).add(5.0) == Sample.of([1.0, 3.0]).merge(Sample.of([5.0])) == Sample.of([1.0, 3.0, 5.0])
    True
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    # The belief that follows, and the prior it follows from, once asked for: beliefs are asked for at every decision,
    # but change one at a time. No part of the value.
    kept: tuple[Gaussian, Belief] | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, values: Iterable[float]) -> Sample:
        """All of these values."""
        sample = cls()
        for value in values:
            sample = sample.add(value)
        return sample

    def add(self, value: float) -> Sample:
        """One more value."""
        if not 0 < value < math.inf:
            raise InputError(f"an observed cost of {value!r}: it must be a finite number above 0.")
        count, off = self.count + 1, value - self.mean
        mean = self.mean + off / count
        return Sample(count, mean, self.squares + off * (value - mean))

    def merge(self, other: Sample) -> Sample:
        """Both together."""
        if not (self.count and other.count):
            return self if self.count else other
        count, off = self.count + other.count, other.mean - self.mean
        return Sample(
            count,
            self.mean + off * other.count / count,
            self.squares + other.squares + off * off * self.count * other.count / count,
        )

    def scale(self, factor: float) -> Sample:
        """Each value times this factor."""
        return Sample(self.count, self.mean * factor, self.squares * factor * factor)

    @property
    def variance(self) -> float:
        """Of the population, as in line 2 of Algorithm 2."""
        return self.squares / self.count if self.count else 0.0


NOTHING = Sample()


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The mean cost is about `mean`; with precision 0 nothing is known."""

    mean: float = 0.0
    precision: float = 0.0

    def draw(self, rng: Rng) -> float:
        """Line 2 of Algorithm 1."""
        if self.precision == 0:
            raise InputError("nothing can be drawn for an arm without an observation or an informative prior.")
        return rng.gauss(self.mean, 1 / math.sqrt(self.precision))


@dataclass(frozen=True, slots=True)
class Certain:
    """All that was seen cost the same, so that no variance could be learnt: each draw is the mean."""

    mean: float

    def draw(self, rng: Rng) -> float:
        """No chance is left."""
        return self.mean


Belief: TypeAlias = Gaussian | Certain
FLAT = Gaussian()


def observe(costs: Sample, others: Iterable[Sample] = (), prior: Gaussian = FLAT) -> Belief:
    """Algorithm 2, lines 2-4: the belief about an arm with these costs.

    `others` are the other arms' costs, looked at where this arm's own variance is not known yet.
    """
    if costs.kept is not None and costs.kept[0] is prior:
        return costs.kept[1]
    belief = _posterior(costs, others, prior)
    if costs.count > 1:  # then it is this arm's own affair
        object.__setattr__(costs, "kept", (prior, belief))
    return belief


def _posterior(costs: Sample, others: Iterable[Sample], prior: Gaussian) -> Belief:
    count, mean = costs.count, costs.mean
    if count == 0:
        return prior
    variance = costs.squares / count if count > 1 else relative_variance(others) * mean**2
    if variance <= 0 or not math.isfinite(count / variance):
        return Certain(mean)
    precision = prior.precision + count / variance
    return Gaussian((prior.precision * prior.mean + count * mean / variance) / precision, precision)


def relative_variance(arms: Iterable[Sample]) -> float:
    """Pooled over arms seen more than once: Var/mean², each arm with the weight of its observations."""
    seen = [arm for arm in arms if arm.count > 1]
    return sum(arm.squares / arm.mean**2 for arm in seen) / sum(arm.count for arm in seen) if seen else 0.0


def beliefs(costs: Mapping[int, Sample], prior: Gaussian = FLAT) -> dict[int, Belief]:
    """Algorithm 2 for every arm."""
    others = costs.values()  # an arm that needs them was seen once, and says nothing of spread itself
    return {size: observe(sample, others, prior) for size, sample in costs.items()}


def predict(arms: Mapping[int, Belief], rng: Rng) -> int:
    """Algorithm 1: the batch size with the smallest draw, each arm with a draw of its own, smaller sizes drawing first.

    >>> import random
    >>> predict({8: Certain(3.0), 16: Certain(2.0)}, random.Random(0))
    16
    """
    if not arms:
        raise InputError("cannot choose among no arms: give each size an observation or an informative prior.")
    draws = {size: arms[size].draw(rng) for size in sorted(arms)}
    return min(draws, key=draws.__getitem__)  # of equal ones the first, which is the smallest size
