"""Optimizes the batch size of a recurring job (§4.3-4.4)."""

from typing import TYPE_CHECKING, Any

from zeus.job import JobSpec

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.optimizer import BatchSizeOptimizer as BatchSizeOptimizer

__all__ = ["BatchSizeOptimizer", "JobSpec"]


def __getattr__(name: str) -> Any:
    """Load the optimizer only when it is used, because it loads the monitor and the store."""
    if name == "BatchSizeOptimizer":
        from zeus.optimizer.batch_size.optimizer import BatchSizeOptimizer

        return BatchSizeOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
