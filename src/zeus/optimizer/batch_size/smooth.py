"""A smooth curve over batch sizes: neighbours are not strangers, so that what one teaches, the others learn a little.

A curve is log Epochs(b) or log EpochCost(b). Before anything is seen it is believed to be a Gaussian process in
d = log2(b / b0): of unknown height, of unknown slope on the whole, bent upwards a little, and rough on either side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]

HEIGHT = 25.0  # variance of the curve's height: nothing is known of it
BEND = 0.045  # per octave squared, upwards: both very small and very large batches need more
SLOPE = 0.4  # per octave, standard deviation
ROUGH = 0.17  # per root octave, of the walk to either side: of Epochs
ROUGH_COST = 0.05  # of EpochCost, which hardware makes the smoother


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of a curve: its mean, covariance and variance over the sizes."""

    mean: tuple[float, ...]
    cov: Vector = field(compare=False)
    var: tuple[float, ...] = field(compare=False)

    def apart(self, a: int, b: int) -> float:
        """Variance of the difference between two sizes."""
        return max(self.var[a] + self.var[b] - 2 * float(self.cov[a, b]), 0.0)


@lru_cache(maxsize=256)
def octaves(sizes: tuple[int, ...]) -> tuple[float, ...]:
    """log2 of each size."""
    return tuple(math.log2(size) for size in sizes)


@lru_cache(maxsize=256)
def prior(
    sizes: tuple[int, ...], default: int, bend: float = BEND, slope: float = SLOPE, rough: float = ROUGH
) -> Belief:
    """What is believed of a curve before anything was seen of it.

    >>> [round(m, 3) for m in prior((8, 16, 64), 16).mean]
    [0.022, 0.0, 0.09]
    """
    d = np.array(octaves(sizes)) - math.log2(default)
    same_side = np.sign(d)[:, None] * np.sign(d)[None, :] > 0
    walk = np.where(same_side, np.minimum(abs(d)[:, None], abs(d)[None, :]), 0.0)
    cov = HEIGHT + slope**2 * np.outer(d, d) + rough**2 * walk
    return Belief(tuple((0.5 * bend * d * d).tolist()), cov, tuple(np.diagonal(cov).tolist()))


def learn(before: Belief, arms: Sequence[int], values: Sequence[float], variances: Sequence[float]) -> Belief:
    """The belief after these sizes (by index) were seen to have these values, each with a variance of its own."""
    if not arms:
        return before
    at = list(arms)
    known = before.cov[at]
    inner = known[:, at]
    inner.flat[:: len(at) + 1] += variances
    gain = np.linalg.solve(inner, known)
    off = np.array(values) - [before.mean[a] for a in at]
    mean = np.array(before.mean) + off @ gain
    cov = before.cov - known.T @ gain
    cov = (cov + cov.T) / 2
    return Belief(tuple(mean.tolist()), cov, tuple(max(v, 0.0) for v in np.diagonal(cov).tolist()))
