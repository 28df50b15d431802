"""Callbacks for Hugging Face: energy in the Trainer's own log, and the batch size."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from zeus.distributed.crew import crew
from zeus.errors import InputError
from zeus.launcher_env import launcher_env
from zeus.lazy import optional
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.training.energy_log import EnergyLog
from zeus.training.framework_trial import FrameworkTrial
from zeus.training.hf_power_limit import add_to_log, batch_size_of, go_before_reporters
from zeus.training.last_line import Part, join, leave

with optional("zeus.training.huggingface", "huggingface", "transformers"):
    from transformers import TrainerCallback, TrainingArguments


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


class EnergyCallback(TrainerCallback):  # type: ignore[misc]
    """Adds `zeus/joules_per_step`, `zeus/joules_per_sample`, `zeus/watts` and `zeus/joules` to what the Trainer logs.

    If a price or a carbon intensity is given, also `zeus/kwh`, `zeus/money` and `zeus/gco2e`.

    They appear in `trainer.state.log_history` and in every tool of `report_to`. It never waits for a sensor: a log
    shows the newest stretch of steps whose energy is already known. With real sensors this is usually the previous one.
    At the end of a training, one line on stderr says what it used.

    Args:
        monitor: Measures the GPUs. Default: one over all visible GPUs, made when training begins.
    """

    def __init__(self, monitor: ZeusMonitor | None = None) -> None:
        self._monitor = monitor
        self._log: EnergyLog | None = None
        self._epochs = 0  # of this training; a checkpoint may have more

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs."""
        if self._monitor is None:
            self._monitor = ZeusMonitor()
        return self._monitor

    @property
    def joules(self) -> float | None:
        """Energy of the training so far, evaluation included; None before it began."""
        return None if self._log is None else self._log.joules

    # ------------------------------------------------------------------ hooks of the Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        go_before_reporters(self, sys._getframe(1).f_locals.get("self"))
        join(state)
        self._log = EnergyLog(self.monitor, crew())
        self._log.begin()
        self._epochs = 0

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._batch(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step. End the stretch before a log or an evaluation."""
        self._batch(args, state)
        if self._log is not None:
            self._log.step()
            if control.should_log or control.should_evaluate:
                self._log.cut()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.monitor.report_step(args.per_device_eval_batch_size, by=self, trainer=state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._log is not None:
            self._log.cut()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._epochs += 1
        if self._log is not None:
            self._log.cut()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        if self._log is not None:
            add_to_log(self._log.values(), state, logs)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._log is not None:
            self._log.end()
            leave(state, Part.ENERGY, self._log.summary(self._epochs))

    def _batch(self, args: Any, state: Any) -> None:
        self.monitor.report_step(batch_size_of(args, state), by=self, trainer=state)
        if self._log is not None:
            self._log.batch(state.train_batch_size or args.train_batch_size)


class BatchSizeCallback(TrainerCallback):  # type: ignore[misc]
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
        self._follower = FrameworkTrial(metric, optimizer)

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs."""
        return self._follower.monitor

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        join(state)
        done = int(state.epoch or 0) if state.global_step else 0  # in the checkpoint of a resumed training
        self._follower.begin(_steps_per_epoch(args, kwargs.get("train_dataloader")), done)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._follower.epoch_begin()
        self._stop(control)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._report(batch_size_of(args, state), state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._report(batch_size_of(args, state), state)
        self._follower.step_end()
        self._stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._follower.steps_end()
        self._report(args.per_device_eval_batch_size, state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._follower.epoch_end()
        self._stop(control)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: dict[str, float] | None = None, **kwargs: Any
    ) -> None:
        self._follower.evaluated(metrics or {})
        self._stop(control)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._follower.end()
        leave(state, Part.TRIAL, self._follower.summary())

    def _report(self, samples: int, state: Any) -> None:
        if self._follower.is_following:
            self._follower.monitor.report_step(samples, by=self, trainer=state)

    def _stop(self, control: Any) -> None:
        if self._follower.finished:
            control.should_training_stop = True


def _steps_per_epoch(args: Any, loader: Any) -> int | None:
    """Updates of the weights in an epoch, or None if the data set has no length."""
    try:
        return max(1, math.ceil(len(loader) / max(1, int(args.gradient_accumulation_steps))))
    except (TypeError, NotImplementedError):
        return None
