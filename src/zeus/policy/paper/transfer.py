"""Heterogeneous GPUs (§7): Epochs(b), observed on any model, times EpochCost(b), profiled on this one, is a cost here.

Costs observed on this GPU model are used as they are. Epochs observed on another model are translated as soon as the
size is profiled on this one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from zeus.errors import InputError
from zeus.policy.common import NOTHING, Sample


class Observation(msgspec.Struct, frozen=True):
    """One run: its cost on its GPU model, and the epochs it needed if it reached the target."""

    gpu_model: str
    cost: float
    epochs: int | None

    def __post_init__(self) -> None:
        if not 0 < self.cost < math.inf:
            raise InputError(f"observed cost {self.cost!r}: give a finite number above 0.")


class Seen(msgspec.Struct, frozen=True):
    """All observations of one size on one GPU model."""

    costs: Sample = NOTHING
    epochs: Sample = NOTHING

    def add(self, one: Observation) -> Seen:
        return Seen(self.costs.add(one.cost), self.epochs if one.epochs is None else self.epochs.add(one.epochs))


UNSEEN = Seen()


class Arm(msgspec.Struct, frozen=True):
    """The observations of one batch size on each GPU model, over the `window` most recent runs (0: all)."""

    window: int = 0
    recent: tuple[Observation, ...] = ()  # only stored if there is a window
    seen: Mapping[str, Seen] = {}

    def add(self, one: Observation) -> Arm:
        """The arm after one more run. With a window the oldest run drops out."""
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
        """The costs on this GPU model: observed ones, and translated ones if EpochCost(b) is known here."""
        if len(self.seen) == 1 and gpu_model in self.seen:
            return self.seen[gpu_model].costs
        costs = NOTHING
        for model in sorted(self.seen):
            if model == gpu_model:
                costs = costs.merge(self.seen[model].costs)
            elif epoch_cost is not None:
                costs = costs.merge(self.seen[model].epochs.scale(epoch_cost))
        return costs
