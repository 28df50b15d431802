"""Optimizes the batch size of a recurring job (§4.3-4.4)."""

from typing import TYPE_CHECKING

from zeus.job import JobSpec
from zeus.lazy import lazy_getattr

if TYPE_CHECKING:
    from zeus.optimizer.batch_size.optimizer import BatchSizeOptimizer as BatchSizeOptimizer

__all__ = ["BatchSizeOptimizer", "JobSpec"]

# The optimizer loads the monitor and the store.
__getattr__ = lazy_getattr(__name__, {"BatchSizeOptimizer": "zeus.optimizer.batch_size.optimizer"})
