"""Several ranks."""

from __future__ import annotations

from zeus.optimizer.power_limit.crew import Alone, Crew


def crew() -> Crew:
    """The ranks of this job."""
    return Alone()


def broadcast(value: float) -> float:
    """The first rank's value."""
    return value
