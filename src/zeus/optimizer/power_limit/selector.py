"""Which of the measured limits to keep: Equation 7 and its alternatives (§4.2; the ε-constraint)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.cost import CostModel
from zeus.errors import InputError


@dataclass(frozen=True, slots=True)
class PowerLimitMeasurement:
    """The same amount of work under one limit: watts, joules and seconds."""

    power_limit: int
    energy: float
    time: float


class OptimumSelector(ABC):
    """Picks a power limit. Derive from this for a choice of your own: only `select` is needed."""

    @abstractmethod
    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The limit to keep, one of those measured, in watts."""


class Scored(OptimumSelector):
    """A selector that minimises a score. The profiler uses it to leave out limits that cannot win any more."""

    @abstractmethod
    def score(self, joules: float, seconds: float) -> float:
        """What some work costs that used this energy and time; only ratios matter."""

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The limit of least score; of equal ones the highest, which is the faster."""
        _some(measurements)
        self.learn_max_watts(max(m.power_limit for m in measurements))
        return min(measurements, key=lambda m: (self.score(m.energy, m.time), -m.power_limit)).power_limit

    def learn_max_watts(self, watts: float) -> None:
        """The cards' highest limit, summed over GPUs; for scores that need it."""


class Energy(Scored):
    """Least energy, however long it takes.

    >>> Energy().select([PowerLimitMeasurement(250, 200.0, 1.0), PowerLimitMeasurement(100, 150.0, 2.0)])
    100
    """

    def score(self, joules: float, seconds: float) -> float:
        """Joules."""
        return joules


class Time(Scored):
    """Least time, whatever it costs."""

    def score(self, joules: float, seconds: float) -> float:
        """Seconds."""
        return seconds


class ZeusCost(Scored):
    """Equation 7: least η·energy + (1−η)·MAXPOWER·time.

    MAXPOWER is `max_watts`: the cards' highest limit summed over all GPUs of the job. The controller fills it in; where
    nobody does, it is `world_size` times the highest limit measured.
    """

    def __init__(self, eta_knob: float, world_size: int = 1, max_watts: float | None = None) -> None:
        CostModel(eta_knob, 1.0)  # refuses an η outside [0, 1]
        if isinstance(world_size, bool) or world_size < 1:
            raise InputError(f"world_size={world_size!r}: give the number of GPUs, at least 1.")
        if max_watts is not None:
            CostModel(eta_knob, max_watts)
        self.eta_knob = eta_knob
        self.world_size = world_size
        self.max_watts = max_watts
        self._seen: float | None = None

    def learn_max_watts(self, watts: float) -> None:
        """One card's highest limit as measured: the last resort, and only for these measurements."""
        self._seen = watts * self.world_size

    def score(self, joules: float, seconds: float) -> float:
        """Equation 2."""
        max_watts = self.max_watts if self.max_watts is not None else self._seen
        if max_watts is None:
            raise InputError("ZeusCost: max_watts is not known yet; give it, or select from measurements first.")
        return CostModel(self.eta_knob, max_watts).cost(joules, seconds)


class MaxSlowdownConstraint(OptimumSelector):
    """The lowest limit that is at most `factor` times slower than the highest one.

    >>> fast, slow = PowerLimitMeasurement(250, 200.0, 1.0), PowerLimitMeasurement(150, 150.0, 1.1)
    >>> MaxSlowdownConstraint(1.2).select([fast, slow]), MaxSlowdownConstraint(1.05).select([fast, slow])
    (150, 250)
    """

    def __init__(self, factor: float) -> None:
        if not factor >= 1:
            raise InputError(f"factor={factor!r}: a slowdown factor is at least 1 (1.1 = at most 10 % slower).")
        self.factor = factor

    def select(self, measurements: list[PowerLimitMeasurement]) -> int:
        """The lowest limit within the constraint; the highest limit always is."""
        _some(measurements)
        reference = max(measurements, key=lambda m: m.power_limit).time
        allowed = [m.power_limit for m in measurements if m.time <= self.factor * reference]
        return min(allowed)


def _some(measurements: Sequence[PowerLimitMeasurement]) -> None:
    if not measurements:
        raise InputError("no measurement to select from.")
