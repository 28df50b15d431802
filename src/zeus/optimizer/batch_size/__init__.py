"""The batch size (§4.3-4.4): pruned from the default outward, then sampled by what each size has cost."""

from typing import TYPE_CHECKING, Any

from zeus.job import JobSpec

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.optimizer import BatchSizeOptimizer as BatchSizeOptimizer

__all__ = ["BatchSizeOptimizer", "JobSpec"]


def __getattr__(name: str) -> Any:
    """The optimizer brings the monitor and the store along, which the pure modules beside it do without."""
    if name == "BatchSizeOptimizer":
        from zeus.optimizer.batch_size.optimizer import BatchSizeOptimizer

        return BatchSizeOptimizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
