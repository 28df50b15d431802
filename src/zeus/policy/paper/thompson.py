"""Algorithms 1 and 2: Gaussian Thompson sampling over the mean cost of each batch size.

A belief is stored as mean and precision (1/variance). Then the flat prior is zero, and precisions add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from zeus.errors import InputError
from zeus.policy.common import Rng, Sample


class Gaussian(msgspec.Struct, frozen=True):
    """A normal belief about the mean cost. Precision 0: nothing is known."""

    mean: float = 0.0
    precision: float = 0.0

    def draw(self, rng: Rng) -> float:
        """Line 2 of Algorithm 1."""
        if self.precision == 0:
            raise InputError("cannot draw for an arm without an observation or an informative prior. Add one of them.")
        return rng.gauss(self.mean, 1 / math.sqrt(self.precision))


class Certain(msgspec.Struct, frozen=True):
    """A belief without variance, because all observed costs were equal. Each draw is the mean."""

    mean: float

    def draw(self, rng: Rng) -> float:
        return self.mean


Belief: TypeAlias = Gaussian | Certain
FLAT = Gaussian()


def observe(costs: Sample, others: Iterable[Sample] = (), prior: Gaussian = FLAT) -> Belief:
    """Algorithm 2, lines 2-4: the belief about an arm with these costs.

    `others` are the costs of the other arms. They supply the variance while this arm's own is unknown.
    """
    count, mean = costs.count, costs.mean
    if count == 0:
        return prior
    variance = costs.squares / count if count > 1 else relative_variance(others) * mean**2
    if variance <= 0 or not math.isfinite(count / variance):
        return Certain(mean)
    precision = prior.precision + count / variance
    return Gaussian((prior.precision * prior.mean + count * mean / variance) / precision, precision)


def relative_variance(arms: Iterable[Sample]) -> float:
    """Var/mean², pooled over arms observed more than once and weighted by their observations."""
    seen = [arm for arm in arms if arm.count > 1]
    return sum(arm.squares / arm.mean**2 for arm in seen) / sum(arm.count for arm in seen) if seen else 0.0


def beliefs(costs: Mapping[int, Sample], prior: Gaussian = FLAT) -> dict[int, Belief]:
    """Algorithm 2 for every arm."""
    others = (
        costs.values()
    )  # includes the arm itself, but an arm that needs them has one observation and does not count
    return {size: observe(sample, others, prior) for size, sample in costs.items()}


def predict(arms: Mapping[int, Belief], rng: Rng) -> int:
    """Algorithm 1: the batch size with the smallest draw. Each arm draws once, in ascending order of size.

    >>> import random
    >>> predict({8: Certain(3.0), 16: Certain(2.0)}, random.Random(0))
    16
    """
    if not arms:
        raise InputError("there is no arm to choose from. Give a size an observation or an informative prior.")
    draws = {size: arms[size].draw(rng) for size in sorted(arms)}
    return min(draws, key=draws.__getitem__)  # of equal draws the smallest size
