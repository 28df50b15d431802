"""A job to replay: what an epoch uses at each size and limit, and how many epochs each run needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeus.cost import CostModel, Use
from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile


@dataclass(frozen=True, slots=True)
class Workload:
    """A job to replay on one GPU model."""

    name: str
    gpu: str
    max_watts: float  # the highest limit in the trace of the GPU
    max_epochs: int
    default: int  # b0
    runs: Mapping[int, Sequence[int | None]]  # by size: the epoch in which each run reached the target, or None
    profiles: Mapping[int, PowerProfile]  # by size: one epoch at each limit

    def __post_init__(self) -> None:
        if not self.runs or set(self.runs) != set(self.profiles) or self.default not in self.runs:
            raise InputError(
                f"workload {self.name!r} on {self.gpu}: runs of {sorted(self.runs)}, profiles of "
                f"{sorted(self.profiles)}, default {self.default}. Every size needs both, and the default must be one."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """B: the sizes that are in both traces, ascending."""
        return tuple(sorted(self.runs))

    @property
    def limits(self) -> tuple[float, ...]:
        """P: the limits in the power trace, highest first."""
        return tuple(sorted({one.limit_watts for p in self.profiles.values() for one in p.slices}, reverse=True))

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """All (b, p) in the power trace, with sizes ascending and limits descending."""
        return tuple((size, one.limit_watts) for size in self.sizes for one in self.profiles[size].slices)

    @property
    def horizon(self) -> int:
        """The default number of recurrences in a replay: 2·|B|·|P|."""
        return 2 * len(self.sizes) * len(self.limits)

    def cost_model(self, eta: float) -> CostModel:
        return CostModel(eta, self.max_watts)

    def best_epoch(self, size: int, eta: float) -> LimitSlice:
        """One epoch at the best limit (Equation 7)."""
        profile = self.profiles[size]
        return profile.at(profile.best_limit(self.cost_model(eta)))

    def profiling_epoch(self, size: int) -> Use:
        """What an epoch uses in which all limits are profiled: the mean over the limits."""
        slices = self.profiles[size].slices
        return Use(sum(s.joules for s in slices) / len(slices), sum(s.seconds for s in slices) / len(slices))

    def epochs_charged(self, size: int) -> float:
        """Mean number of epochs of a run at this size. A run that misses the target goes on to max_epochs."""
        runs = self.runs[size]
        return sum(self.max_epochs if n is None else min(n, self.max_epochs) for n in runs) / len(runs)

    def expected(self, size: int, limit_watts: float) -> Use:
        """The mean use of a run at this batch size and power limit."""
        epoch, epochs = self.profiles[size].at(limit_watts), self.epochs_charged(size)
        return Use(epochs * epoch.joules, epochs * epoch.seconds)

    def always_converges(self, size: int) -> bool:
        """Whether every traced run of this size reached the target within max_epochs."""
        return all(n is not None and n <= self.max_epochs for n in self.runs[size])
