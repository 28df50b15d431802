"""A curve over batch sizes, log Epochs(b) or log EpochCost(b). A run of one size also tells about its neighbours.

Several shapes are possible. Each is a Gaussian process in d = log2(b / b0): its height and slope are unknown, it bends
upwards, and it is a random walk to either side. Each shape learns from every observation, and counts by how well it
predicted them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]

HEIGHT = 25.0  # variance of the curve's height, large because nothing is known about it


class Shape(NamedTuple):
    """What a curve may look like."""

    odds: float  # before any observation, relative to the other shapes
    bend: float  # upwards, per octave squared: both very small and very large batches need more
    rise: float  # expected slope per octave
    slope: float  # its standard deviation
    rough: float  # standard deviation per root octave of the random walk


EPOCHS = (
    Shape(1.0, 0.045, 0.0, 0.4, 0.17),  # a trend
    Shape(1.0, 0.0, 0.0, 0.0, 0.12),  # none: many jobs need the same epochs at any size
    Shape(0.3, 0.045, 0.3, 0.8, 0.17),  # steep: beyond some size, a batch twice as large may need twice the epochs
)
EPOCH_COST = (  # smoother, because it depends on hardware
    Shape(1.0, 0.045, 0.0, 0.4, 0.05),
    Shape(1.0, 0.12, 0.0, 0.4, 0.05),  # it soon stops falling once the GPU is busy
)


class Part(NamedTuple):
    """What one shape believes: its odds, and the mean and covariance over the sizes."""

    odds: float
    mean: Vector
    cov: Vector

    def between(self, a: int, b: int) -> tuple[float, float, float]:
        """Size a minus size b: mean and variance; and the covariance of the difference with a."""
        at = self.cov.item
        shared, own = at(a, b), at(a, a)
        return self.mean.item(a) - self.mean.item(b), max(own + at(b, b) - 2 * shared, 0.0), own - shared


@dataclass(frozen=True, slots=True)
class Belief:
    """A mixture of normal beliefs about a curve; and its mean and variance over the sizes."""

    parts: tuple[Part, ...] = field(compare=False)
    mean: tuple[float, ...]
    var: tuple[float, ...] = field(compare=False)

    def apart(self, a: int, b: int) -> float:
        """Variance of the difference between two sizes."""
        off, found = self.mean[a] - self.mean[b], 0.0
        for part in self.parts:
            mean, var, _ = part.between(a, b)
            found += part.odds * (var + (mean - off) ** 2)
        return found


@lru_cache(maxsize=256)
def octaves(sizes: tuple[int, ...]) -> tuple[float, ...]:
    """log2 of each size."""
    return tuple(math.log2(size) for size in sizes)


class Prior(msgspec.Struct, frozen=True, eq=False):
    """The belief before any observation: log odds, mean and covariance of each shape."""

    log_odds: Vector
    means: Vector
    covs: Vector


@lru_cache(maxsize=256)
def prior(sizes: tuple[int, ...], default: int, shapes: tuple[Shape, ...], rise: float = 0.0) -> Prior:
    """The prior of a curve of one of these shapes, centred on the default size, with so much more slope per octave.

    >>> prior((8, 16, 64), 16, EPOCH_COST).means.round(3).tolist()
    [[0.022, 0.0, 0.09], [0.06, 0.0, 0.24]]
    """
    d = np.array(octaves(sizes)) - math.log2(default)
    same_side = np.sign(d)[:, None] * np.sign(d)[None, :] > 0
    walk = np.where(same_side, np.minimum(abs(d)[:, None], abs(d)[None, :]), 0.0)
    return Prior(
        np.log([one.odds for one in shapes]),
        np.array([(one.rise + rise) * d + 0.5 * one.bend * d * d for one in shapes]),
        np.array([HEIGHT + one.slope**2 * np.outer(d, d) + one.rough**2 * walk for one in shapes]),
    )


def learn(before: Prior, arms: Sequence[int], values: Sequence[float], variances: Sequence[float]) -> Belief:
    """The belief after observing these values of these sizes (by index), each with its own variance.

    >>> before = prior((8, 16, 32), 8, EPOCHS)
    >>> [round(m, 2) for m in learn(before, [0, 1], [1.0, 1.1], [0.01, 0.01]).mean]
    [1.02, 1.08, 1.13]
    """
    at = list(arms)
    known = before.covs[:, at]
    inner = known[:, :, at].copy()  # the strided view below is its diagonal
    inner.reshape(len(inner), -1)[:, :: len(at) + 1] += variances
    off = values - before.means[:, at]
    solved = np.linalg.solve(inner, np.concatenate((known, off[:, :, None]), axis=2))
    gain, misfits = solved[:, :, :-1], (off * solved[:, :, -1]).sum(axis=1)
    means = before.means + (off[:, None, :] @ gain)[:, 0]
    covs = before.covs - known.transpose(0, 2, 1) @ gain
    likely = before.log_odds - (misfits + np.linalg.slogdet(inner)[1]) / 2
    odds = np.exp(likely - likely.max())
    odds /= odds.sum()
    mean = odds @ means
    var = odds @ (np.diagonal(covs, axis1=1, axis2=2).clip(0.0) + (means - mean) ** 2)
    parts = tuple(map(Part, odds.tolist(), means, covs))
    return Belief(parts, tuple(mean.tolist()), tuple(var.tolist()))
