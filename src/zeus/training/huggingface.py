"""Callbacks for Hugging Face: energy in the Trainer's own log, and the batch size."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.distributed.group import rank_group
from zeus.errors import InputError
from zeus.launcher_env import launcher_env
from zeus.lazy import optional
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.training.framework_trial import FrameworkTrial
from zeus.training.hf_power_limit import RunCallback, go_before_reporters
from zeus.training.training_run import TrainingRun

with optional("zeus.training.huggingface", "huggingface", "transformers"):
    from transformers import TrainingArguments


T = TypeVar("T")


def training_arguments(make: Callable[..., T] = TrainingArguments, /, **keywords: Any) -> T:
    """Arguments of a Trainer, with the batch size of `zeus run` in place of the given one.

    `per_device_train_batch_size` and `gradient_accumulation_steps` become those of ZEUS_PER_DEVICE_BATCH_SIZE and
    ZEUS_ACCUMULATION_STEPS. Without `zeus run` all arguments stay as given.

        args = training_arguments(output_dir="out", per_device_train_batch_size=16, num_train_epochs=3)

    Args:
        make: The class of the arguments, for example TRL's `SFTConfig`.
        keywords: Its arguments.

    Raises:
        InputError: The GPUs of the job cannot share the batch size evenly.
    """
    order = launcher_env()
    if order.batch_size is None:
        return make(**keywords)
    if order.per_device_batch_size is None:
        raise InputError(
            f"ZEUS_BATCH_SIZE={order.batch_size} is for all GPUs of the job, which cannot share it evenly. Give the "
            "job batch sizes that are multiples of the number of its GPUs."
        )
    return make(
        **keywords
        | {
            "per_device_train_batch_size": order.per_device_batch_size,
            "gradient_accumulation_steps": order.accumulation_steps or 1,
        }
    )


class EnergyCallback(RunCallback):
    """Adds `zeus/joules_per_step`, `zeus/joules_per_sample`, `zeus/watts` and `zeus/joules` to what the Trainer logs.

    If a price or a carbon intensity is given, also `zeus/kwh`, `zeus/money` and `zeus/gco2e`.

    They appear in `trainer.state.log_history` and in every tool of `report_to`. It never waits for a sensor: a log
    shows the newest steps whose energy is already known. With real sensors these are usually those of the previous log.
    At the end of a training, one line on stderr says what it used.

    Args:
        monitor: Measures the GPUs. Default: one over all visible GPUs, made when training begins.
    """

    @property
    def joules(self) -> float | None:
        """Energy of the training, evaluation included; None before it begins. NaN if a GPU does not report it."""
        return self._run.joules

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        go_before_reporters(self, sys._getframe(1).f_locals.get("self"))
        self._run = TrainingRun.join(state, rank_group(), self.monitor)

    def _values(self, run: TrainingRun) -> dict[str, float]:
        return run.energy_values()


class BatchSizeCallback(RunCallback):
    """Ends training at the target or at the cost limit, and reports the outcome to the job.

    Under `zeus run` it reports to the launcher's trial, otherwise to the trial of the given `optimizer`. Without either
    it does nothing. A Trainer does not tell its callbacks about an exception: the outcome is then reported at the end
    of the process.

        Trainer(..., callbacks=[BatchSizeCallback("eval_accuracy")])

    Args:
        metric: Name of the job's metric, as the Trainer's evaluation names it.
        optimizer: The optimizer whose `get_batch_size()` the Trainer was made with.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None) -> None:
        super().__init__()
        self._trial = FrameworkTrial(metric, optimizer)

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs. Raises InputError if there is no trial."""
        return self._trial.optimizer.monitor

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        done = int(state.epoch or 0) if state.global_step else 0  # in the checkpoint of a resumed training
        if self._trial.begin(_steps_per_epoch(args, kwargs.get("train_dataloader")), done):
            self._run = TrainingRun.join(state, rank_group(), trial=self._trial)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        self._trial.evaluated(metrics or {})
        super().on_evaluate(args, state, control, **kwargs)
        self._stop(control)

    def _report(self, samples: int, state: Any) -> None:
        if self._run.trial is not None:
            super()._report(samples, state)


def _steps_per_epoch(args: Any, loader: Any) -> int | None:
    """Updates of the weights in an epoch, or None if the data set has no length."""
    try:
        return max(1, math.ceil(len(loader) / max(1, int(args.gradient_accumulation_steps))))
    except (TypeError, NotImplementedError):
        return None
