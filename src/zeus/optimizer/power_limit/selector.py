"""Selectors choose the power limit to keep from the measured ones: Equation 7 and its alternatives (§4.2)."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from zeus.cost import CostModel
from zeus.errors import InputError


@dataclass(frozen=True, slots=True)
class PowerLimitMeasurement:
    """What the same amount of work uses at one limit, in watts, joules and seconds."""

    power_limit: int
    energy: float
    time: float


class OptimumSelector(ABC):
    """Chooses a power limit. To make a choice of your own, derive from this class and define `select`."""

    @abstractmethod
    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The limit to keep, in watts. It must be one of those measured."""


class Scored(OptimumSelector):
    """A selector that minimises a score. The profiler uses the score to skip limits that cannot win."""

    @abstractmethod
    def score(self, joules: float, seconds: float) -> float:
        """The score of work that used this energy and time. Only ratios of scores matter."""

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The limit with the lowest score; if several have it, the highest limit, which is the fastest."""
        _some(measurements)
        scored = self.with_highest(max(m.power_limit for m in measurements))
        return min(measurements, key=lambda m: (scored.score(m.energy, m.time), -m.power_limit)).power_limit

    def with_highest(self, limit_watts: float) -> Self:
        """This selector for GPUs with this highest limit, for scores that need it."""
        return self


class Energy(Scored):
    """Selects the limit with the least energy.

    >>> Energy().select([PowerLimitMeasurement(250, 200.0, 1.0), PowerLimitMeasurement(100, 150.0, 2.0)])
    100
    """

    def score(self, joules: float, seconds: float) -> float:
        return joules


class Time(Scored):
    """Selects the limit with the least time."""

    def score(self, joules: float, seconds: float) -> float:
        return seconds


class ZeusCost(Scored):
    """Equation 7: least η·energy + (1−η)·MAXPOWER·time.

    MAXPOWER is `max_watts`, the highest limit summed over all GPUs of the job. If it is None, the power limit optimizer
    fills it in. Used without one, it is `world_size` times the highest limit measured.

    Args:
        eta_knob: η, from 0 (time only) to 1 (energy only).
        world_size: Number of GPUs of the job.
        max_watts: MAXPOWER in watts.

    Raises:
        InputError: An argument is out of range.
    """

    def __init__(self, eta_knob: float, world_size: int = 1, max_watts: float | None = None) -> None:
        CostModel(eta_knob, 1.0)  # raises if η is outside [0, 1]
        if isinstance(world_size, bool) or world_size < 1:
            raise InputError(f"world_size={world_size!r}: give the number of GPUs, at least 1.")
        if max_watts is not None:
            CostModel(eta_knob, max_watts)
        self.eta_knob = eta_knob
        self.world_size = world_size
        self.max_watts = max_watts

    def with_highest(self, limit_watts: float) -> Self:
        """This selector. If it has no MAXPOWER, a copy with that of `world_size` GPUs."""
        return self.with_max_watts(limit_watts * self.world_size)

    def with_max_watts(self, max_watts: float) -> Self:
        """This selector. If it has no MAXPOWER, a copy with this one: its user may take it for other GPUs too."""
        if self.max_watts is not None:
            return self
        filled = copy.copy(self)
        filled.max_watts = max_watts
        return filled

    def score(self, joules: float, seconds: float) -> float:
        if self.max_watts is None:
            raise InputError("ZeusCost: max_watts is not known. Give it, or call select() with measurements.")
        return CostModel(self.eta_knob, self.max_watts).cost(joules, seconds)


class MaxSlowdownConstraint(OptimumSelector):
    """Selects the lowest limit that takes at most `factor` times as long as the highest one (the ε-constraint).

    Raises InputError if `factor` is below 1.

    >>> fast, slow = PowerLimitMeasurement(250, 200.0, 1.0), PowerLimitMeasurement(150, 150.0, 1.1)
    >>> MaxSlowdownConstraint(1.2).select([fast, slow]), MaxSlowdownConstraint(1.05).select([fast, slow])
    (150, 250)
    """

    def __init__(self, factor: float) -> None:
        if not factor >= 1:
            raise InputError(f"factor={factor!r}: a slowdown factor is at least 1 (1.1 = at most 10 % slower).")
        self.factor = factor

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The lowest limit within the constraint. The highest limit always is."""
        _some(measurements)
        reference = max(measurements, key=lambda m: m.power_limit).time
        allowed = [m.power_limit for m in measurements if m.time <= self.factor * reference]
        return min(allowed)


def _some(measurements: Sequence[PowerLimitMeasurement]) -> None:
    if not measurements:
        raise InputError("there is no measurement to select from: give at least one.")
