"""A curve over batch sizes, log Epochs(b) or log EpochCost(b). A run of one size also tells about its neighbours.

Several shapes are possible. Each is a Gaussian process in d = log2(b / b0): its height and slope are unknown, it bends
upwards, and it is a random walk to either side. Each shape learns from every observation, and counts by how well it
predicted them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
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


class Estimate(NamedTuple):
    """A value with its variance."""

    mean: float
    variance: float

    def joined(self, other: Estimate | None) -> Estimate:
        """Both together, if they are independent."""
        if other is None:
            return self
        share = self.variance / (self.variance + other.variance)
        return Estimate(self.mean + share * (other.mean - self.mean), share * other.variance)


class Belief(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A mixture of normal beliefs about a curve: log odds, mean and covariance over the sizes for each shape."""

    log_odds: Vector
    means: Vector
    covs: Vector

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Belief) and self.mean == other.mean

    def __hash__(self) -> int:
        return hash(self.mean)

    @cached_property
    def odds(self) -> Vector:
        likely = np.exp(self.log_odds - self.log_odds.max())
        odds: Vector = likely / likely.sum()
        return odds

    @cached_property
    def mean(self) -> tuple[float, ...]:
        return tuple((self.odds @ self.means).tolist())

    @cached_property
    def var(self) -> tuple[float, ...]:
        own = np.diagonal(self.covs, axis1=1, axis2=2).clip(0.0)
        return tuple((self.odds @ (own + (self.means - self.mean) ** 2)).tolist())

    @cached_property
    def _shapes(self) -> list[tuple[float, Callable[[int], float], Callable[[int, int], float]]]:
        each = zip(self.odds.tolist(), self.means, self.covs, strict=True)
        return [(odds, mean.item, cov.item) for odds, mean, cov in each]  # `item` is the fastest access to a number

    def between(self, a: int, b: int) -> Iterator[tuple[float, float, float, float, float]]:
        """Size a minus size b, for each shape: odds, mean, variance; its covariance with a; and the variance of a."""
        for odds, mean, cov in self._shapes:
            own, shared = cov(a, a), cov(a, b)
            yield odds, mean(a) - mean(b), max(own + cov(b, b) - 2 * shared, 0.0), own - shared, own

    def apart(self, a: int, b: int) -> float:
        """Variance of the difference between two sizes."""
        off = self.mean[a] - self.mean[b]
        return sum(odds * (var + (mean - off) ** 2) for odds, mean, var, _, _ in self.between(a, b))


@lru_cache(maxsize=256)
def prior(sizes: tuple[int, ...], default: int, shapes: tuple[Shape, ...], rise: float = 0.0) -> Belief:
    """A curve of one of these shapes, centred on the default size, with so much more slope per octave.

    >>> prior((8, 16, 64), 16, EPOCH_COST).means.round(3).tolist()
    [[0.022, 0.0, 0.09], [0.06, 0.0, 0.24]]
    """
    d = np.log2(np.array(sizes) / default)
    same_side = np.sign(d)[:, None] * np.sign(d)[None, :] > 0
    walk = np.where(same_side, np.minimum(abs(d)[:, None], abs(d)[None, :]), 0.0)
    return Belief(
        np.log([one.odds for one in shapes]),
        np.array([(one.rise + rise) * d + 0.5 * one.bend * d * d for one in shapes]),
        np.array([HEIGHT + one.slope**2 * np.outer(d, d) + one.rough**2 * walk for one in shapes]),
    )


def learn(before: Belief, seen: Mapping[int, Estimate]) -> Belief:
    """The belief after these observations, by size (as an index).

    >>> before = prior((8, 16, 32), 8, EPOCHS)
    >>> [round(m, 2) for m in learn(before, {0: Estimate(1.0, 0.01), 1: Estimate(1.1, 0.01)}).mean]
    [1.02, 1.08, 1.13]
    """
    at = sorted(seen)
    known = before.covs[:, at]
    inner = known[:, :, at].copy()  # the strided view below is its diagonal
    inner.reshape(len(inner), -1)[:, :: len(at) + 1] += [seen[arm].variance for arm in at]
    off = [seen[arm].mean for arm in at] - before.means[:, at]
    solved = np.linalg.solve(inner, np.concatenate((known, off[:, :, None]), axis=2))
    gain, misfits = solved[:, :, :-1], (off * solved[:, :, -1]).sum(axis=1)
    return Belief(
        before.log_odds - (misfits + np.linalg.slogdet(inner)[1]) / 2,
        before.means + (off[:, None, :] @ gain)[:, 0],
        before.covs - known.transpose(0, 2, 1) @ gain,
    )
