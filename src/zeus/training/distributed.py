"""Several ranks train one model: what they agree on, and who says so."""

from __future__ import annotations

from typing import Any

from zeus.optimizer.ranks import broadcast, crew

__all__ = ["broadcast", "crew"]


def __getattr__(name: str) -> Any:
    """`TorchCrew` needs torch, so it is loaded only when asked for."""
    if name == "TorchCrew":
        from zeus.optimizer.power_limit.torch_crew import TorchCrew

        return TorchCrew
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
