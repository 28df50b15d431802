"""Energy in a Lightning Trainer's own logs, its power limit and its batch size: `Trainer(callbacks=[...])`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zeus.distributed.crew import crew
from zeus.env import orders
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.launched_trial import launched_arguments
from zeus.training.energy_log import EnergyLog
from zeus.training.framework_trial import FrameworkTrial

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback
except ImportError as missing:
    raise ImportError("zeus.training.lightning needs lightning: `pip install lightning`.") from missing


class EnergyCallback(Callback):  # type: ignore[misc]
    """Logs `zeus/joules_per_step`, `zeus/joules_per_sample`, `zeus/watts` and `zeus/joules` with the Trainer's logger.

    Nothing waits for a sensor: a log shows the newest stretch of steps whose energy is known by then.

    Args:
        monitor: Measures the GPUs; default: the optimizer's, or one over all visible GPUs.
        optimizer: Finds the best power limit and keeps it; or what makes one from a monitor once the ranks of a
            distributed training have come together, such as the class itself. Under `zeus run` that is given the
            job's profiles, limits and η too; one that is made already is left as it is.
        batch_size: Samples in a batch on one GPU; default: the length of the batch's first tensor.

    Example:
        Trainer(callbacks=[EnergyCallback(optimizer=GlobalPowerLimitOptimizer)])
    """

    def __init__(
        self,
        monitor: ZeusMonitor | None = None,
        optimizer: GlobalPowerLimitOptimizer | Callable[..., GlobalPowerLimitOptimizer] | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self._optimizer = optimizer if isinstance(optimizer, GlobalPowerLimitOptimizer) else None
        self._make = None if isinstance(optimizer, GlobalPowerLimitOptimizer) else optimizer
        self._monitor = monitor or (self._optimizer.monitor if self._optimizer is not None else None)
        self._batch_size = batch_size
        self._log: EnergyLog | None = None
        self._in_epoch = self._running = False
        self._stepped = 0

    @property
    def monitor(self) -> ZeusMonitor:
        """What measures."""
        if self._monitor is None:
            self._monitor = ZeusMonitor()
        return self._monitor

    @property
    def optimizer(self) -> GlobalPowerLimitOptimizer | None:
        """What sets the limit, if anything does."""
        return self._optimizer

    @property
    def joules(self) -> float | None:
        """Energy of the training, evaluation included, as far as it is known by now; None before it began."""
        return None if self._log is None else self._log.joules

    # ------------------------------------------------------------------ the Trainer's word

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins; the sanity check is over."""
        if self._optimizer is None and self._make is not None:
            self._optimizer = _made(self._make, self.monitor)
        self._log = EnergyLog(self.monitor, crew())
        self._log.begin()
        self._stepped = trainer.global_step
        if self._optimizer is not None:
            self._optimizer.on_train_begin()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Training steps follow."""
        self._in_epoch = True
        self._resume()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A validation in the middle of the epoch may have come before."""
        self._resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch was trained on, and with it a step may have ended."""
        size = self._report(trainer, batch)
        if self._log is None:
            return
        self._log.batch(size)
        if trainer.global_step == self._stepped:  # gradients of several batches are accumulated
            return
        self._stepped = trainer.global_step
        self._log.step()
        if self._optimizer is not None:
            self._optimizer.on_step_end()
        every = trainer.log_every_n_steps
        if every and self._stepped % every == 0:
            self._log.cut()
            if values := self._log.values():
                pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=size)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Profiling pauses."""
        self._pause()
        if self._log is not None:
            self._log.cut()

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        """One batch of a validation, or of the sanity check before the training."""
        self._report(trainer, batch)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Training may go on, which on_train_batch_start tells."""
        if self._log is not None:
            self._log.cut()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """No more steps in this epoch."""
        self._in_epoch = False
        self._pause()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Put the limit back; the rest of the energy is known soon."""
        self._end(wait=True)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Put the limit back, waiting for no other rank."""
        self._end(wait=False)

    def _pause(self) -> None:
        if self._running:
            self._running = False
            if self._optimizer is not None:
                self._optimizer.on_epoch_end()

    def _resume(self) -> None:
        if self._in_epoch and not self._running:
            self._running = True
            if self._optimizer is not None:
                self._optimizer.on_epoch_begin()

    def _end(self, wait: bool) -> None:
        self._in_epoch = self._running = False
        try:
            if self._log is not None:
                self._log.end(wait)
        finally:
            if self._optimizer is not None:
                self._optimizer.on_train_end()

    def _report(self, trainer: Any, batch: Any) -> int:
        size = self._batch_size or length(batch) or 1
        self.monitor.report_step(size, by=self, trainer=trainer)
        return size


class BatchSizeCallback(Callback):  # type: ignore[misc]
    """Ends a Trainer at the target or where it costs too much, and tells its job what the batch size came to.

    Under `zeus run` it follows the launcher's trial; else the trial of the `optimizer` given; else it does nothing.

        Trainer(callbacks=[BatchSizeCallback("val_accuracy")])

    Args:
        metric: What to go by, as the module logs it in its validation.
        optimizer: Whose `get_batch_size()` the data loader was made with.
        batch_size: Samples in a batch on one GPU; default: the length of the batch's first tensor.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None, batch_size: int | None = None) -> None:
        super().__init__()
        self._follower = FrameworkTrial(metric, optimizer)
        self._batch_size = batch_size

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Measure from here on; the sanity check is over."""
        batches = trainer.num_training_batches  # infinite where the data set does not know its length
        self._follower.begin(int(batches) if batches and batches != float("inf") else None)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """An epoch begins."""
        self._follower.epoch_begin()
        self._stop(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A batch was trained on; the epoch may cost more than the trial is worth."""
        self._report(trainer, batch)
        self._follower.step_end()
        self._stop(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Training steps pause."""
        self._follower.steps_end()

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        """One batch of a validation."""
        self._report(trainer, batch)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """The metric is known."""
        if not trainer.sanity_checking:
            self._follower.evaluated(trainer.callback_metrics)
            self._stop(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """No more steps in this epoch."""
        self._follower.epoch_end()
        self._stop(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training that ends without the target has not converged."""
        self._follower.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Training has failed."""
        self._follower.failed(exception)

    def _stop(self, trainer: Any) -> None:
        if self._follower.finished:
            trainer.should_stop = True

    def _report(self, trainer: Any, batch: Any) -> None:
        if self._follower.is_following:
            size = self._batch_size or length(batch) or 1
            self._follower.monitor.report_step(size, by=self, trainer=trainer)


def _made(make: Callable[..., GlobalPowerLimitOptimizer], monitor: ZeusMonitor) -> GlobalPowerLimitOptimizer:
    """With the ranks, and under `zeus run` the job's profiles, limits and η, as far as `make` takes and lacks them."""
    given = getattr(make, "keywords", {})  # of a `functools.partial`
    found, takes = launched_arguments(orders(), monitor, crew(), given), inspect.signature(make).parameters
    return make(monitor, **{name: value for name, value in found.items() if name in takes})


def length(batch: Any) -> int | None:
    """Samples in a batch: the length of the first tensor in it.

    >>> import numpy
    >>> length({"x": [numpy.zeros((16, 3)), numpy.zeros(16)]})
    16
    """
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    parts: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, list | tuple):
        parts = batch
    return next((size for size in map(length, parts) if size is not None), None)
