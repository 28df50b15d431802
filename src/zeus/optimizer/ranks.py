"""The ranks that train one model together, found without loading torch where the script has not."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from zeus.optimizer.power_limit.crew import Alone, Crew

T = TypeVar("T")


def crew() -> Crew:
    """All ranks where torch.distributed is set up for several, else this process alone; torch is not loaded for it.

    >>> crew().size
    1
    """
    return _torch().crew() if "torch.distributed" in sys.modules else Alone()


def broadcast(value: T) -> T:
    """Rank 0's value on every rank, for decisions that all must take alike.

    >>> broadcast("go on")
    'go on'
    """
    return _torch().broadcast(value) if "torch.distributed" in sys.modules else value


def _torch() -> Any:
    from zeus.optimizer.power_limit import torch_crew

    return torch_crew
