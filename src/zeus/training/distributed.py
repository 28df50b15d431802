"""Several ranks train one model: what they agree on, and who says so."""

from __future__ import annotations

import sys
from typing import Any

from zeus.optimizer.power_limit.crew import Alone, Crew

__all__ = ["broadcast", "crew"]


def crew() -> Crew:
    """All ranks where torch.distributed is set up for several, else this process alone; torch is not loaded for it.

    >>> crew().size
    1
    """
    return _torch().crew() if "torch.distributed" in sys.modules else Alone()


def broadcast(value: Any) -> Any:
    """Rank 0's value on every rank, for decisions that all must take alike.

    >>> broadcast("go on")
    'go on'
    """
    return _torch().broadcast(value) if "torch.distributed" in sys.modules else value


def _torch() -> Any:
    from zeus.optimizer.power_limit import torch_crew

    return torch_crew


def __getattr__(name: str) -> Any:
    """`TorchCrew` needs torch, so it is loaded only when asked for."""
    if name == "TorchCrew":
        return _torch().TorchCrew
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
