"""Optimizes the power limit (§4.2): profiles limits during training, then keeps the best."""

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
    """Load the Hugging Face callback only when it is used, because it needs transformers."""
    if name == "HFGlobalPowerLimitOptimizer":
        from zeus.optimizer.power_limit.huggingface import HFGlobalPowerLimitOptimizer

        return HFGlobalPowerLimitOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
