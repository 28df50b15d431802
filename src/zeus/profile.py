"""What was measured under each power limit, and the limit to choose from it: Equations 5 and 7."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zeus.cost import LEAST, MOST, CostModel
from zeus.errors import InputError


@dataclass(frozen=True, slots=True)
class ProfileKey:
    """What a profile is of. One of another key is never used."""

    job: str
    batch_size: int
    gpu_model: str
    gpu_count: int


@dataclass(frozen=True, slots=True)
class LimitSlice:
    """Some training steps under one limit, on all GPUs of the job together."""

    limit_watts: float
    steps: int
    seconds: float
    joules: float

    def __post_init__(self) -> None:
        sound = 0 < self.steps <= MOST and LEAST <= self.seconds <= MOST and 0 <= self.joules <= MOST
        if not (sound and LEAST <= self.limit_watts <= MOST):
            raise InputError(f"{self}: a slice has steps, seconds above 0 and known joules.")

    @property
    def watts(self) -> float:
        """Average power."""
        return self.joules / self.seconds

    def step_cost(self, cost: CostModel) -> float:
        """The fraction of Equation 5 per step: (η·AvgPower + (1−η)·MAXPOWER) / Throughput in steps per second."""
        return cost.rate(self.watts) * self.seconds / self.steps


@dataclass(frozen=True, slots=True)
class PowerProfile:
    """Raw measurements of one (job, batch size, GPU model, GPU count), and which limits were left out.

    >>> slices = [LimitSlice(250, 10, 1.0, 200), LimitSlice(150, 10, 1.2, 150)]
    >>> profile = PowerProfile.of(slices, limits=[250, 150, 100])
    >>> profile.best_limit(CostModel(eta=1, max_watts=250)), profile.unmeasured
    (150, (100,))
    """

    slices: tuple[LimitSlice, ...]
    limits: tuple[float, ...]  # all that were candidates, highest first

    @classmethod
    def of(cls, slices: Iterable[LimitSlice], limits: Iterable[float] = ()) -> PowerProfile:
        """Slices of the same limit are added up."""
        sums: dict[float, LimitSlice] = {}
        for one in slices:
            had = sums.get(one.limit_watts)
            sums[one.limit_watts] = (
                one
                if had is None
                else LimitSlice(
                    one.limit_watts, had.steps + one.steps, had.seconds + one.seconds, had.joules + one.joules
                )
            )
        ordered = sorted(sums, reverse=True)
        return cls(tuple(sums[w] for w in ordered), tuple(sorted({*limits, *ordered}, reverse=True)))

    def at(self, limit_watts: float) -> LimitSlice:
        """What was measured under this limit."""
        for one in self.slices:
            if one.limit_watts == limit_watts:
                return one
        raise InputError(
            f"nothing was measured at {limit_watts:g} W; measured: {[s.limit_watts for s in self.slices]}."
        )

    @property
    def unmeasured(self) -> tuple[float, ...]:
        """Candidates that were not measured, highest first."""
        measured = {one.limit_watts for one in self.slices}
        return tuple(w for w in self.limits if w not in measured)

    def beside(self, earlier: PowerProfile | None) -> PowerProfile:
        """This, and what an earlier profile holds of limits that were no candidates this time."""
        if earlier is None:
            return self
        others = [one for one in earlier.slices if one.limit_watts not in self.limits]
        return PowerProfile.of([*self.slices, *others], [*self.limits, *earlier.limits])

    def step_cost(self, cost: CostModel, limit_watts: float) -> float:
        """Equation 5's fraction per step at this limit."""
        return self.at(limit_watts).step_cost(cost)

    def epoch_cost(self, cost: CostModel, limit_watts: float, steps: int) -> float:
        """Equation 5's fraction for an epoch of this many steps."""
        return self.step_cost(cost, limit_watts) * steps

    def best_limit(self, cost: CostModel) -> float:
        """Equation 7: the measured limit with the least cost; of equal ones the highest, which is the faster."""
        if not self.slices:
            raise InputError("an empty profile has no best limit.")
        return min(self.slices, key=lambda one: (one.step_cost(cost), -one.limit_watts)).limit_watts

    def to_json(self) -> dict[str, Any]:
        """A superset of the file that users know: `measurements` with `power_limit`, `energy` and `time`."""
        rows = [
            {"power_limit": _whole(s.limit_watts), "energy": s.joules, "time": s.seconds, "steps": s.steps}
            for s in self.slices
        ]
        return {"measurements": rows, "unmeasured": [_whole(w) for w in self.unmeasured]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PowerProfile:
        """Reads our file, and the known one, whose rows all span the same number of steps."""
        try:
            rows = [
                LimitSlice(float(r["power_limit"]), int(r.get("steps", 1)), float(r["time"]), float(r["energy"]))
                for r in data["measurements"]
            ]
            return cls.of(rows, [float(w) for w in data.get("unmeasured", ())])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as wrong:
            raise InputError(
                f"not a power profile ({wrong!r}): expected an object with a list `measurements`, each of which has "
                "`power_limit`, `energy` and `time`."
            ) from wrong


def _whole(watts: float) -> float | int:
    return int(watts) if float(watts).is_integer() else watts


class Profiles(Protocol):
    """Where profiles are kept. `get` gives back what `put` took under an equal key, and nothing under any other."""

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key."""

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of the nearest other batch size of the same job on the same GPUs, by ratio."""

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep this profile in place of what was kept under its key."""


def nearest(key: ProfileKey, sizes: Iterable[int]) -> list[int]:
    """Other batch sizes than the key's, the nearest first.

    >>> nearest(ProfileKey("asr", 32, "V100", 1), [8, 32, 256, 16])
    [16, 8, 256]
    """
    return sorted({*sizes} - {key.batch_size}, key=lambda size: (abs(math.log(size / key.batch_size)), size))
