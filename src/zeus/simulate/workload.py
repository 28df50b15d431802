"""A job whose runs and epochs are known: what one costs at each size and limit, and how many epochs runs needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeus.cost import CostModel, Use
from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile


@dataclass(frozen=True, slots=True)
class Workload:
    """A job that can be replayed."""

    name: str
    gpu: str
    max_watts: float  # the highest limit in the GPU's trace
    max_epochs: int
    default: int
    runs: Mapping[int, Sequence[int | None]]  # by size: the epoch in which each run reached the target; None: never
    profiles: Mapping[int, PowerProfile]  # by size: one epoch at each limit

    def __post_init__(self) -> None:
        if not self.runs or set(self.runs) != set(self.profiles) or self.default not in self.runs:
            raise InputError(
                f"workload {self.name!r} on {self.gpu}: runs of {sorted(self.runs)}, profiles of "
                f"{sorted(self.profiles)}, default {self.default}. All sizes need both, and the default is one of them."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """B: the sizes that both traces hold."""
        return tuple(sorted(self.runs))

    @property
    def limits(self) -> tuple[float, ...]:
        """P: the limits in the power trace, highest first."""
        return tuple(sorted({one.limit_watts for p in self.profiles.values() for one in p.slices}, reverse=True))

    @property
    def pairs(self) -> tuple[tuple[int, float], ...]:
        """All (b, p) in the power trace: sizes upward, for each the limits downward."""
        return tuple((size, one.limit_watts) for size in self.sizes for one in self.profiles[size].slices)

    @property
    def horizon(self) -> int:
        """How many recurrences are replayed unless told otherwise: 2·|B|·|P|."""
        return 2 * len(self.sizes) * len(self.limits)

    def cost_model(self, eta: float) -> CostModel:
        """Cost on this GPU."""
        return CostModel(eta, self.max_watts)

    def best_epoch(self, size: int, eta: float) -> LimitSlice:
        """One epoch at the best limit (Equation 7)."""
        profile = self.profiles[size]
        return profile.at(profile.best_limit(self.cost_model(eta)))

    def profiling_epoch(self, size: int) -> Use:
        """An epoch in which all limits are profiled: the mean over them."""
        slices = self.profiles[size].slices
        return Use(sum(s.joules for s in slices) / len(slices), sum(s.seconds for s in slices) / len(slices))

    def epochs_charged(self, size: int) -> float:
        """Epochs of a run at this size, on average; one that misses the target runs to max_epochs."""
        runs = self.runs[size]
        return sum(self.max_epochs if n is None else min(n, self.max_epochs) for n in runs) / len(runs)

    def expected(self, size: int, limit_watts: float) -> Use:
        """A run at this pair, on average."""
        epoch, epochs = self.profiles[size].at(limit_watts), self.epochs_charged(size)
        return Use(epochs * epoch.joules, epochs * epoch.seconds)

    def always_converges(self, size: int) -> bool:
        """Whether every traced run of this size reached the target within max_epochs."""
        return all(n is not None and n <= self.max_epochs for n in self.runs[size])
