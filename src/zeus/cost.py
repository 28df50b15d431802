"""The cost of a training run: Equations 1 to 3."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from zeus.errors import InputError

# The range of joules, seconds and watts that we accept. Within it no square, sum or ratio of two values overflows.
LEAST, MOST = 1e-9, 1e18


Include: TypeAlias = tuple[str, ...]  # whose energy a cost counts: "gpu", and "cpu" for the CPU and its memory
GPU_ONLY: Include = ("gpu",)
GPU_AND_CPU: Include = ("gpu", "cpu")
_AND_CPU = " + CPU"


def included(include: object) -> Include:
    """Whose energy a cost counts, checked and in one order.

    Raises:
        InputError: It is anything but ["gpu"] or ["gpu", "cpu"].

    >>> included(["cpu", "gpu"])
    ('gpu', 'cpu')
    """
    if isinstance(include, Iterable) and not isinstance(include, str | bytes):
        found = list(include)
        for known in (GPU_ONLY, GPU_AND_CPU):
            if len(found) == len(known) and all(name in found for name in known):
                return known
    raise InputError(f'include={include!r}: give ["gpu"], or ["gpu", "cpu"] to count the CPU and its memory too.')


def counted_as(gpu_model: str, include: Include) -> str:
    """The name under which costs and profiles are stored. Those with and without the CPU cannot be compared.

    >>> counted_as("V100", GPU_ONLY), counted_as("V100", GPU_AND_CPU)
    ('V100', 'V100 + CPU')
    """
    return gpu_model if include == GPU_ONLY or gpu_model.endswith(_AND_CPU) else gpu_model + _AND_CPU


class Use(msgspec.Struct, frozen=True, array_like=True):
    """Energy and time of a piece of training, summed over its devices; or a factor or an error of each.

    Unknown energy is NaN.

    >>> Use(100.0, 2.0) * Use(1.5, 0.5) + Use(1.0, 1.0)
    Use(joules=151.0, seconds=2.0)
    """

    joules: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Use) -> Use:
        return Use(self.joules + other.joules, self.seconds + other.seconds)

    def __sub__(self, other: Use) -> Use:
        return Use(self.joules - other.joules, self.seconds - other.seconds)

    def __mul__(self, other: Use) -> Use:
        return Use(self.joules * other.joules, self.seconds * other.seconds)

    def __truediv__(self, other: Use) -> Use:
        return Use(self.joules / other.joules, self.seconds / other.seconds)

    def __abs__(self) -> Use:
        return Use(abs(self.joules), abs(self.seconds))

    def times(self, factor: float) -> Use:
        return Use(self.joules * factor, self.seconds * factor)

    def hypot(self, other: Use) -> Use:
        """The error of a sum whose two terms have these independent errors."""
        return Use(math.hypot(self.joules, other.joules), math.hypot(self.seconds, other.seconds))

    def most(self, other: Use) -> Use:
        return Use(max(self.joules, other.joules), max(self.seconds, other.seconds))

    def least(self, other: Use) -> Use:
        return Use(min(self.joules, other.joules), min(self.seconds, other.seconds))

    def each(self, function: Callable[[float], float]) -> Use:
        return Use(function(self.joules), function(self.seconds))

    def within(self, share: float) -> bool:
        """Whether joules and seconds are both at most `share`."""
        return self.joules <= share and self.seconds <= share

    @property
    def is_known(self) -> bool:
        """Whether the energy is known."""
        return math.isfinite(self.joules)


ZERO = Use()
ONE = Use(1.0, 1.0)

SLACK = 1e-9  # with β = 1 and no noise, rounding must not exclude the best size


def ceiling(limit: float | None) -> float:
    """The highest cost that still fits under a bound; None means no bound."""
    return math.inf if limit is None else limit * (1 + SLACK)


def fits(cost: float, limit: float | None) -> bool:
    """Whether a cost fits under a bound; None means no bound."""
    return not cost > ceiling(limit)


@dataclass(frozen=True, slots=True)
class CostModel:
    """The user's preference η between energy and time, and MAXPOWER, which converts time to energy.

    `max_watts` is the highest supported power limit, summed over all GPUs of the job. So η means the same for any
    number of GPUs, and whether or not the joules include the CPU's.

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
                f"max_watts={self.max_watts!r}: give the highest power limit in watts, summed over the GPUs."
            )

    def cost(self, joules: float, seconds: float) -> float:
        """Equation 2: the cost of a run that used this energy and time, in joules."""
        return self.eta * joules + (1 - self.eta) * self.max_watts * seconds

    def of(self, use: Use) -> float:
        """Equation 2 for this use; NaN if its energy is unknown."""
        return self.cost(use.joules, use.seconds)

    def rate(self, watts: float) -> float:
        """Equation 3: the cost accrued per second at this average power, in watts."""
        return self.eta * watts + (1 - self.eta) * self.max_watts
