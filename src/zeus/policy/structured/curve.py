"""A smooth curve over batch sizes. An observation of one size also says something about its neighbours.

A curve is log Epochs(b) or log EpochCost(b). The prior is a Gaussian process in d = log2(b / b0): its height and slope
are unknown, it bends slightly upwards, and it is a random walk to either side. If several shapes are possible, each
learns, weighted by how well it predicted the observations.
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

    bend: float  # upwards, per octave squared: both very small and very large batches need more
    slope: float  # standard deviation per octave
    rough: float  # standard deviation per root octave of the random walk


EPOCHS = (Shape(0.045, 0.4, 0.17), Shape(0.0, 0.0, 0.12))  # the second: many jobs need the same epochs at any size
EPOCH_COST = (Shape(0.045, 0.4, 0.05),)  # smoother, because it depends on hardware


@dataclass(frozen=True, slots=True)
class Belief:
    """A normal belief about a curve: mean, covariance and variance over the sizes."""

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


class Prior(msgspec.Struct, frozen=True, eq=False):
    """The belief before any observation: mean and covariance of each shape. All shapes are equally likely."""

    means: Vector
    covs: Vector


@lru_cache(maxsize=256)
def prior(sizes: tuple[int, ...], default: int, shapes: tuple[Shape, ...]) -> Prior:
    """The prior of a curve of one of these shapes, centred on the default size.

    >>> prior((8, 16, 64), 16, EPOCH_COST).means.round(3).tolist()
    [[0.022, 0.0, 0.09]]
    """
    d = np.array(octaves(sizes)) - math.log2(default)
    same_side = np.sign(d)[:, None] * np.sign(d)[None, :] > 0
    walk = np.where(same_side, np.minimum(abs(d)[:, None], abs(d)[None, :]), 0.0)
    return Prior(
        np.array([0.5 * one.bend * d * d for one in shapes]),
        np.array([HEIGHT + one.slope**2 * np.outer(d, d) + one.rough**2 * walk for one in shapes]),
    )


def learn(before: Prior, arms: Sequence[int], values: Sequence[float], variances: Sequence[float]) -> Belief:
    """The belief after observing these values of these sizes (by index), each with its own variance.

    It has the mean and covariance of the mixture of shapes, so it is uncertain where the shapes disagree.

    >>> before = prior((8, 16, 32), 8, EPOCHS)
    >>> [round(m, 2) for m in learn(before, [0, 1], [1.0, 1.1], [0.01, 0.01]).mean]
    [1.02, 1.08, 1.12]
    >>> [round(m, 2) for m in learn(before, [0, 1], [1.0, 2.0], [0.01, 0.01]).mean]
    [1.05, 1.95, 2.77]
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
    if len(means) == 1:
        return _belief(means[0], covs[0])
    likely = -(misfits + np.linalg.slogdet(inner)[1]) / 2
    odds = np.exp(likely - likely.max())
    odds /= odds.sum()
    mean = odds @ means
    apart = means - mean
    within = (odds @ covs.reshape(len(odds), -1)).reshape(covs[0].shape)
    return _belief(mean, within + (odds * apart.T) @ apart)


def _belief(mean: Vector, cov: Vector) -> Belief:
    cov = (cov + cov.T) / 2
    return Belief(tuple(mean.tolist()), cov, tuple(max(v, 0.0) for v in np.diagonal(cov).tolist()))
