"""Heterogeneous GPUs (§7): Epochs(b), observed anywhere, times EpochCost(b), profiled here, is a cost here.

What a size was observed to cost on this GPU model is taken as it is. What it needed on another model is translated once
the size is profiled here, and waits until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.policy.paper.thompson import NOTHING, Sample


@dataclass(frozen=True, slots=True)
class Observation:
    """What one run taught: its cost where it ran; the epochs it needed, if it reached the target."""

    gpu_model: str
    cost: float
    epochs: int | None


@dataclass(frozen=True, slots=True)
class Seen:
    """All that was observed of one size on one GPU model."""

    costs: Sample = NOTHING
    epochs: Sample = NOTHING

    def add(self, one: Observation) -> Seen:
        """One more run."""
        return Seen(self.costs.add(one.cost), self.epochs if one.epochs is None else self.epochs.add(one.epochs))


UNSEEN = Seen()


@dataclass(frozen=True, slots=True)
class Arm:
    """What was observed of one batch size: on each GPU model, over the `window` most recent runs (0: all)."""

    window: int = 0
    recent: tuple[Observation, ...] = ()  # kept only where something is to be forgotten
    seen: Mapping[str, Seen] = field(default_factory=dict)

    def add(self, one: Observation) -> Arm:
        """One more run; with a window the oldest one beyond it is forgotten."""
        if not self.window:
            return Arm(0, (), {**self.seen, one.gpu_model: self.seen.get(one.gpu_model, UNSEEN).add(one)})
        recent = (*self.recent, one)[-self.window :]
        seen: dict[str, Seen] = {}
        for kept in recent:
            seen[kept.gpu_model] = seen.get(kept.gpu_model, UNSEEN).add(kept)
        return Arm(self.window, recent, seen)

    @property
    def converged(self) -> bool:
        """Whether any of these runs reached the target."""
        return any(seen.epochs.count for seen in self.seen.values())

    def costs(self, gpu_model: str, epoch_cost: float | None) -> Sample:
        """The costs on this GPU model: observed, and translated where EpochCost(b) is known here."""
        if len(self.seen) == 1 and gpu_model in self.seen:
            return self.seen[gpu_model].costs
        costs = NOTHING
        for model in sorted(self.seen):
            if model == gpu_model:
                costs = costs.merge(self.seen[model].costs)
            elif epoch_cost is not None:
                costs = costs.merge(self.seen[model].epochs.scale(epoch_cost))
        return costs
