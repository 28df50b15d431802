"""What training uses at each power limit, and which limit is best: Equations 5 and 7."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from zeus.cost import LEAST, MOST, CostModel, Use
from zeus.errors import InputError
from zeus.lazy import lazy_getattr

__getattr__ = lazy_getattr(  # names of the existing package; this module itself stays pure
    __name__,
    dict.fromkeys(
        (
            *("SweepReport", "SweepResult", "TrialResult", "measure"),
            *("profile_cooldown_duration", "profile_measurement_duration", "profile_parameters"),
        ),
        "zeus.compat.repetition",
    ),
)

_Whole = Annotated[int, Meta(ge=1, le=2**53)]  # as far as all who read JSON agree


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What a profile was measured for. It is used for nothing else."""

    job: str
    batch_size: _Whole
    gpu_model: str
    gpu_count: _Whole


@dataclass(frozen=True, slots=True)
class LimitSlice:
    """Some training steps at one power limit, summed over all GPUs of the job."""

    limit_watts: float
    steps: int
    seconds: float
    joules: float
    seconds_error: float | None = None  # standard error of `seconds`; None: unknown
    joules_error: float | None = None

    def __post_init__(self) -> None:
        sound = 0 < self.steps <= MOST and LEAST <= self.seconds <= MOST and 0 <= self.joules <= MOST
        if not (sound and LEAST <= self.limit_watts <= MOST):
            raise InputError(f"{self}: give steps, seconds and watts above 0, and joules of at least 0.")
        if any(error is not None and not 0 <= error <= MOST for error in (self.seconds_error, self.joules_error)):
            raise InputError(f"{self}: an error is a number of at least 0, or None.")

    @property
    def watts(self) -> float:
        """Average power."""
        return self.joules / self.seconds

    def step_cost(self, cost: CostModel) -> float:
        """The fraction of Equation 5 per step: (η·AvgPower + (1−η)·MAXPOWER) / Throughput in steps per second."""
        return cost.rate(self.watts) * self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class PowerProfile:
    """Raw measurements for one (job, batch size, GPU model, GPU count), and which limits were not measured.

    >>> slices = [LimitSlice(250, 10, 1.0, 200), LimitSlice(150, 10, 1.2, 150)]
    >>> profile = PowerProfile.of(slices, limits=[250, 150, 100])
    >>> profile.best_limit(CostModel(eta=1, max_watts=250)), profile.unmeasured
    (150, (100,))
    """

    slices: tuple[LimitSlice, ...]
    limits: tuple[float, ...]  # all candidates, highest first

    @classmethod
    def of(cls, slices: Iterable[LimitSlice], limits: Iterable[float] = ()) -> PowerProfile:
        """A profile of these slices. Slices of the same limit are added up, and their scatter tells the errors."""
        groups: dict[float, list[LimitSlice]] = {}
        for one in slices:
            groups.setdefault(one.limit_watts, []).append(one)
        scatter = {
            "seconds": pooled_scatter(groups.values(), lambda one: one.seconds / one.steps),
            "joules": pooled_scatter(groups.values(), lambda one: one.joules / one.steps),
        }
        ordered = sorted(groups, reverse=True)
        sums = tuple(_sum(groups[watts], scatter) for watts in ordered)
        return cls(sums, tuple(sorted({*limits, *ordered}, reverse=True)))

    def at(self, limit_watts: float) -> LimitSlice:
        """The measurement at this limit. InputError if there is none."""
        for one in self.slices:
            if one.limit_watts == limit_watts:
                return one
        raise InputError(
            f"nothing was measured at {limit_watts:g} W. Measured limits: {[s.limit_watts for s in self.slices]}."
        )

    def step_at(self, limit_watts: float | None) -> Use | None:
        """What a step uses at this limit, or None if that was not measured."""
        found = (one for one in self.slices if one.limit_watts == limit_watts)
        return next((Use(one.joules / one.steps, one.seconds / one.steps) for one in found), None)

    @property
    def unmeasured(self) -> tuple[float, ...]:
        """Candidate limits that were not measured, highest first."""
        measured = {one.limit_watts for one in self.slices}
        return tuple(w for w in self.limits if w not in measured)

    def beside(self, earlier: PowerProfile | None) -> PowerProfile:
        """This profile, plus an earlier one's measurements of limits that were not candidates this time."""
        if earlier is None:
            return self
        others = [one for one in earlier.slices if one.limit_watts not in self.limits]
        return PowerProfile.of([*self.slices, *others], [*self.limits, *earlier.limits])

    def step_cost(self, cost: CostModel, limit_watts: float) -> float:
        """Equation 5's fraction per step at this limit."""
        return self.at(limit_watts).step_cost(cost)

    def epoch_cost(self, cost: CostModel, limit_watts: float, steps: int) -> float:
        """Equation 5's fraction for an epoch of `steps` steps."""
        return self.step_cost(cost, limit_watts) * steps

    def best_limit(self, cost: CostModel) -> float:
        """Equation 7: the measured limit with the lowest cost. Of equal ones the highest wins, as it is faster."""
        if not self.slices:
            raise InputError("the power profile is empty, so it has no best limit. Profile at least one limit first.")
        return min(self.slices, key=lambda one: (one.step_cost(cost), -one.limit_watts)).limit_watts

    def to_json(self) -> dict[str, Any]:
        """The profile as JSON: the file format that users know, with `steps` and `unmeasured` added."""
        rows = []
        for one in self.slices:
            errors = {"energy_error": one.joules_error, "time_error": one.seconds_error}
            known = {name: error for name, error in errors.items() if error is not None}
            measured = {"energy": one.joules, "time": one.seconds, "steps": one.steps}
            rows.append({"power_limit": whole(one.limit_watts), **measured, **known})
        return {"measurements": rows, "unmeasured": [whole(watts) for watts in self.unmeasured]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PowerProfile:
        """Read `to_json`'s format, or the older one without `steps`, whose rows all span the same number of steps."""
        try:
            return msgspec.convert(data, ProfileFile, strict=False).profile
        except (ValueError, OverflowError) as wrong:
            raise InputError(
                f"not a power profile ({wrong}): expected an object with a list `measurements`, whose entries have "
                "`power_limit`, `energy` and `time`."
            ) from wrong


class MeasuredLimit(msgspec.Struct, frozen=True):
    """Training steps measured at one power limit, with the names that users know."""

    power_limit: float  # watts
    energy: float
    time: float
    steps: int = 1
    energy_error: float | None = None
    time_error: float | None = None


class ProfileFile(msgspec.Struct, frozen=True):
    """A power profile in its file format. Rows without `steps` all span the same number of steps."""

    measurements: list[MeasuredLimit]
    unmeasured: list[float] = []

    @property
    def profile(self) -> PowerProfile:
        """The profile. InputError if a value is out of bounds."""
        slices = [
            LimitSlice(one.power_limit, one.steps, one.time, one.energy, one.time_error, one.energy_error)
            for one in self.measurements
        ]
        return PowerProfile.of(slices, self.unmeasured)


def pooled_scatter(
    groups: Iterable[Sequence[LimitSlice]], per_step: Callable[[LimitSlice], float]
) -> tuple[float, int]:
    """Relative standard deviation of one step's value, pooled over groups, and its degrees of freedom.

    Slices are weighted by their steps, because they differ in length.
    """
    squares, freedom = 0.0, 0
    for some in groups:
        mean = sum(per_step(one) * one.steps for one in some) / sum(one.steps for one in some)
        if mean > 0:  # a GPU that reports 0 W shows no scatter
            squares += sum(one.steps * (per_step(one) / mean - 1) ** 2 for one in some)
            freedom += len(some) - 1
    return math.sqrt(squares / freedom) if freedom else 0.0, freedom


def _sum(some: list[LimitSlice], scatter: Mapping[str, tuple[float, int]]) -> LimitSlice:
    """The sum of slices of one limit, with the errors from the scatter, or else from the slices' own errors."""
    if len(some) == 1 and not any(freedom for _, freedom in scatter.values()):
        return some[0]
    steps = sum(one.steps for one in some)
    totals = {name: sum(getattr(one, name) for one in some) for name in scatter}
    errors: dict[str, float | None] = {}
    for name, (share, freedom) in scatter.items():
        own = [getattr(one, f"{name}_error") for one in some]
        if freedom:
            errors[name] = totals[name] * share / math.sqrt(steps)
        else:
            errors[name] = None if None in own else math.hypot(*own)
    return LimitSlice(
        some[0].limit_watts, steps, totals["seconds"], totals["joules"], errors["seconds"], errors["joules"]
    )


def whole(watts: float) -> float | int:
    """Watts as people write them: 250, not 250.0."""
    return int(watts) if float(watts).is_integer() else watts


class Profiles(Protocol):
    """Where profiles are kept. `get` returns what `put` stored under an equal key, and None for any other key."""

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile stored under exactly this key, or None."""

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size, by ratio, of the same job on the same GPUs; None if none."""

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store this profile. It replaces any that was stored under this key."""


def nearest(batch_size: int, sizes: Iterable[int]) -> list[int]:
    """The batch sizes other than this one, nearest first (by ratio).

    >>> nearest(32, [8, 32, 256, 16])
    [16, 8, 256]
    """
    return sorted({*sizes} - {batch_size}, key=lambda size: (abs(math.log2(size / batch_size)), size))
