"""Callbacks for Lightning: energy in the Trainer's own log, the power limit and the batch size."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zeus.distributed.group import rank_group
from zeus.lazy import optional
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.training.framework_trial import FrameworkTrial
from zeus.training.training_run import TrainingRun

with optional("zeus.training.lightning", "lightning", "lightning"):
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        from lightning.pytorch import Callback


class LightningCallback(Callback):  # type: ignore[misc]
    """Passes the events of a Trainer on to its run, and ends it with its trial."""

    def __init__(self, monitor: ZeusMonitor | None, batch_size: int | None) -> None:
        super().__init__()
        self._monitor, self._batch_size = monitor, batch_size
        self._run = TrainingRun()  # of the last training
        self._stepped = 0

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs."""
        if self._monitor is None:
            self._monitor = ZeusMonitor()
        return self._monitor

    def _log(self, run: TrainingRun, module: Any, size: int) -> None:
        """Add values to the Trainer's log."""

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._run.epoch_begin()
        self._stop(trainer)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Resume after a validation in the middle of the epoch."""
        self._run.resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a batch, and a step if the weights were updated."""
        size = self._report(trainer, batch)
        run, number = self._run, trainer.global_step
        run.batch(size, by=self)
        if number == self._stepped:  # gradients are being accumulated over several batches
            return
        self._stepped = number
        run.step(number)
        if trainer.log_every_n_steps and number % trainer.log_every_n_steps == 0:
            run.log_due()
            self._log(run, pl_module, size)
        self._stop(trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._run.log_due()
        self._run.pause()

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        """Report a batch of a validation, or of the sanity check before training."""
        self._report(trainer, batch)
        self._run.evaluating()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """End the measurement of the validation. Training resumes in `on_train_batch_start`."""
        self._run.log_due()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._run.epoch_end()
        self._stop(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._end(failed=False)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._end(failed=True)  # other ranks may be gone

    def _end(self, *, failed: bool) -> None:
        self._run.end(wait=not failed)
        self._run.leave(failed=failed)

    def _report(self, trainer: Any, batch: Any) -> int:
        size = self._batch_size or length(batch) or 1
        self.monitor.report_step(size, by=self, trainer=trainer)
        return size

    def _stop(self, trainer: Any) -> None:
        if self._run.is_over:
            trainer.should_stop = True


class EnergyCallback(LightningCallback):
    """Logs `zeus/joules_per_step`, `zeus/joules_per_sample`, `zeus/watts` and `zeus/joules` with the Trainer's logger.

    If a price or a carbon intensity is given, also `zeus/kwh`, `zeus/money` and `zeus/gco2e`.

    It never waits for a sensor: a log shows the newest stretch of steps whose energy is already known. With an
    optimizer it also logs `zeus/power_limit`, `zeus/saved_joules` and `zeus/saved_joules_error` once they are known. At
    the end of a training, one line on stderr says what it used and saved.

    Args:
        monitor: Measures the GPUs. Default: the optimizer's, or one over all visible GPUs.
        optimizer: Finds the best power limit and keeps it: an optimizer, or a callable such as the class itself that
            makes one from a monitor when training begins, once the ranks of a distributed training are connected.
        batch_size: Samples in a batch on one GPU. Default: the length of the batch's first tensor.

    Example:
        Trainer(callbacks=[EnergyCallback(optimizer=GlobalPowerLimitOptimizer)])
    """

    def __init__(
        self,
        monitor: ZeusMonitor | None = None,
        optimizer: GlobalPowerLimitOptimizer | Callable[..., GlobalPowerLimitOptimizer] | None = None,
        batch_size: int | None = None,
    ) -> None:
        self._optimizer = optimizer if isinstance(optimizer, GlobalPowerLimitOptimizer) else None
        self._make = None if isinstance(optimizer, GlobalPowerLimitOptimizer) else optimizer
        super().__init__(monitor or (self._optimizer.monitor if self._optimizer is not None else None), batch_size)

    @property
    def joules(self) -> float | None:
        """Energy of the training, evaluation included; None before it begins. NaN if a GPU does not report it."""
        return self._run.joules

    @property
    def optimizer(self) -> GlobalPowerLimitOptimizer | None:
        """The power limit optimizer, if there is one."""
        return self._optimizer

    # ------------------------------------------------------------------ hooks of the Trainer

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._optimizer is None and self._make is not None:
            self._optimizer = _made(self._make, self.monitor)
        self._stepped = trainer.global_step
        if self._optimizer is not None:
            self._optimizer.on_train_begin()
        self._run = TrainingRun.join(trainer, rank_group(), self.monitor, self._optimizer)

    def _log(self, run: TrainingRun, module: Any, size: int) -> None:
        if values := run.energy_values() | run.limit_values():
            module.log_dict(values, on_step=True, on_epoch=False, batch_size=size)

    def _end(self, *, failed: bool) -> None:
        try:
            self._run.end(wait=not failed)
        finally:
            if self._optimizer is not None:
                self._optimizer.on_train_end()
        self._run.leave(failed=failed)


class BatchSizeCallback(LightningCallback):
    """Ends training at the target or at the cost limit, and reports the outcome to the job.

    Under `zeus run` it reports to the launcher's trial, otherwise to the trial of the given `optimizer`. Without either
    it does nothing.

        Trainer(callbacks=[BatchSizeCallback("val_accuracy")])

    Args:
        metric: Name of the job's metric, as the module logs it in its validation.
        optimizer: The optimizer whose `get_batch_size()` the data loader was made with.
        batch_size: Samples in a batch on one GPU. Default: the length of the batch's first tensor.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None, batch_size: int | None = None) -> None:
        super().__init__(None, batch_size)
        self._trial = FrameworkTrial(metric, optimizer)

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs. Raises InputError if there is no trial."""
        return self._trial.optimizer.monitor

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        batches, folded = trainer.num_training_batches, trainer.accumulate_grad_batches
        known = batches and batches != float("inf")  # infinite if the data set has no length
        self._stepped = trainer.global_step
        done = trainer.current_epoch if trainer.global_step else 0  # in the checkpoint of a resumed training
        if self._trial.begin(math.ceil(batches / max(1, folded)) if known else None, done):
            self._run = TrainingRun.join(trainer, rank_group(), trial=self._trial)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._trial.evaluated(trainer.callback_metrics)
        super().on_validation_end(trainer, pl_module)
        self._stop(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._trial.failed(exception)
        super().on_exception(trainer, pl_module, exception)

    def _report(self, trainer: Any, batch: Any) -> int:
        return 0 if self._run.trial is None else super()._report(trainer, batch)


def _made(make: Callable[..., GlobalPowerLimitOptimizer], monitor: ZeusMonitor) -> GlobalPowerLimitOptimizer:
    """Call `make` with the ranks, if it takes them."""
    return make(monitor, group=rank_group()) if "group" in inspect.signature(make).parameters else make(monitor)


def length(batch: Any) -> int | None:
    """Samples in a batch: the length of its first tensor.

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
