"""The optimizers of the power limit (§4.2) and of the batch size (§4.3-4.4)."""

from zeus.lazy import lazy_getattr

__getattr__ = lazy_getattr(
    __name__, {"GlobalPowerLimitOptimizer": "zeus.optimizer.power_limit"}
)  # its place before 0.9
