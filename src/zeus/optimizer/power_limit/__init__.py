"""Optimizes the power limit (§4.2): profiles limits during training, then keeps the best."""

from typing import TYPE_CHECKING

from zeus.lazy import lazy_getattr
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
    from zeus.training.hf_power_limit import HFGlobalPowerLimitOptimizer as HFGlobalPowerLimitOptimizer

__all__ = [
    "Energy",
    "GlobalPowerLimitOptimizer",
    "MaxSlowdownConstraint",
    "OptimumSelector",
    "PowerLimitMeasurement",
    "Time",
    "ZeusCost",
]

# The callback needs transformers.
__getattr__ = lazy_getattr(__name__, {"HFGlobalPowerLimitOptimizer": "zeus.training.hf_power_limit"})
