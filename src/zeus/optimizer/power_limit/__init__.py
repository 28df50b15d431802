"""The power limit (§4.2): profiled just in time, then kept at its best."""

from typing import TYPE_CHECKING, Any

from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.selector import (
    Energy,
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Time,
    ZeusCost,
)

if TYPE_CHECKING:
    from zeus.optimizer.power_limit.huggingface import HFGlobalPowerLimitOptimizer as HFGlobalPowerLimitOptimizer

__all__ = [
    "Energy",
    "GlobalPowerLimitOptimizer",
    "MaxSlowdownConstraint",
    "OptimumSelector",
    "PowerLimitMeasurement",
    "Time",
    "ZeusCost",
]


def __getattr__(name: str) -> Any:
    """The Hugging Face callback needs transformers, so it is loaded only when asked for."""
    if name == "HFGlobalPowerLimitOptimizer":
        from zeus.optimizer.power_limit.huggingface import HFGlobalPowerLimitOptimizer

        return HFGlobalPowerLimitOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
