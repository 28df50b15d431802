"""How a card runs a training step under a power limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Card:
    """One model of GPU."""

    name: str
    min_watts: float
    max_watts: float
    default_watts: float
    idle_watts: float


@dataclass(frozen=True, slots=True)
class Load:
    """One workload on one card."""

    seconds_per_sample: float


@dataclass(frozen=True, slots=True)
class Operation:
    """One step."""

    seconds: float
    watts: float


def operate(card: Card, load: Load, batch_size: int, limit_watts: float) -> Operation:
    """One training step."""
    f = (limit_watts / card.max_watts) ** 0.4
    return Operation(load.seconds_per_sample * batch_size / f, 0.95 * limit_watts)
