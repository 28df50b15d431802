"""Power limit optimizer for Hugging Face: `Trainer(callbacks=[HFGlobalPowerLimitOptimizer(monitor)])` (§4.2)."""

from __future__ import annotations

import inspect
import sys
from types import TracebackType
from typing import Any

from zeus import settings
from zeus.device.ranks import connected
from zeus.distributed.group import RankGroup, rank_group
from zeus.lazy import optional
from zeus.monitor import ZeusMonitor
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.profile import PowerProfile
from zeus.training.train_watch import TrainWatch
from zeus.training.training_run import TrainingRun

with optional("HFGlobalPowerLimitOptimizer", "huggingface", "transformers"):
    from transformers import TrainerCallback
    from transformers.trainer_callback import CallbackHandler, DefaultFlowCallback


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Passes the events of a Trainer on to its run, adds values to its log, and ends it with its trial."""

    def __init__(self, monitor: ZeusMonitor | None = None) -> None:
        self._monitor = monitor
        self._run = TrainingRun()  # of the last training

    @property
    def monitor(self) -> ZeusMonitor:
        """The monitor that measures the GPUs."""
        if self._monitor is None:
            self._monitor = ZeusMonitor()
        return self._monitor

    def _values(self, run: TrainingRun) -> dict[str, float]:
        """What to add to a log."""
        return {}

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._run.epoch_begin()
        self._stop(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resume after an evaluation or a checkpoint."""
        self._run.resume()

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._batch(args, state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step. Steps pause before an evaluation or a checkpoint."""
        self._batch(args, state)
        self._run.step(state.global_step)
        if control.should_log or control.should_evaluate:
            self._run.log_due()
        if control.should_evaluate or control.should_save:
            self._run.pause()
        self._stop(control)

    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._report(args.per_device_eval_batch_size, state)
        self._run.evaluating()

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Resume here already, because fetching the next batch is part of its step."""
        self._run.log_due()
        if not control.should_save:
            self._run.resume()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._run.resume()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._run.epoch_end()
        self._stop(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **kwargs: Any) -> None:
        """Add values to a log, and to the history, which the Trainer has already written."""
        if logs is not None:
            values = self._values(self._run)
            logs.update(values)
            if state.log_history:
                state.log_history[-1].update(values)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._run.end()
        self._run.leave()

    def _batch(self, args: Any, state: Any) -> None:
        self._report(batch_size_of(args, state), state)
        self._run.batch(state.train_batch_size or args.train_batch_size, by=self)

    def _report(self, samples: int, state: Any) -> None:
        """A batch was computed, for training or for an evaluation. There may be no training around it."""
        self.monitor.report_step(samples, by=self, trainer=state)

    def _stop(self, control: Any) -> None:
        if self._run.is_over:
            control.should_training_stop = True


class HFGlobalPowerLimitOptimizer(RunCallback):
    """A `GlobalPowerLimitOptimizer` as a callback of a Hugging Face Trainer. It takes the same arguments.

    At the end of a training it prints the chosen limit and what it saved, and it adds `zeus/power_limit`,
    `zeus/saved_joules` and `zeus/saved_joules_error` to what the Trainer logs, as far as they are known.

    Under `zeus run` it uses the job's profiles, limits and η, unless they are given. Evaluation and checkpoints in the
    middle of an epoch pause the profiling. A training with another batch size is profiled anew.

    A Trainer does not tell its callbacks about an exception. So a thread looks once a second whether `train()` still
    runs, and restores the limit if not. To restore it at once, use this as a context manager around `train()`.

        with HFGlobalPowerLimitOptimizer(ZeusMonitor()) as power:
            Trainer(model, args, train_dataset=data, callbacks=[power]).train()
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        TrainWatch.look_at_all()  # otherwise a limit that is about to be restored would be taken as the one found
        self._given = inspect.signature(GlobalPowerLimitOptimizer).bind(*args, **kwargs)
        super().__init__(self._given.arguments["monitor"])
        # Several ranks can exchange values only after the Trainer has connected them.
        self._optimizer = None if settings.has_several_ranks() or connected() else self._made(RankGroup())
        self._watch: TrainWatch | None = None
        self._profiled: tuple[int, int] | None = None  # samples on a GPU, and accumulation steps

    @property
    def optimizer(self) -> GlobalPowerLimitOptimizer:
        """The `GlobalPowerLimitOptimizer`. Several ranks must all read this, as they do when training begins."""
        if self._optimizer is None:
            self._optimizer = self._made(rank_group())
        return self._optimizer

    def _made(self, ranks: RankGroup) -> GlobalPowerLimitOptimizer:
        return GlobalPowerLimitOptimizer(**{"group": ranks, **self._given.arguments})

    @property
    def profile(self) -> PowerProfile | None:
        """The measured profile once profiling is done, else None."""
        return self.optimizer.profile

    @property
    def best_limit(self) -> float | None:
        """The selector's choice in watts once profiling is done, else None."""
        return self.optimizer.best_limit

    @property
    def why_not(self) -> str | None:
        """Why no limits are set, or None if they are."""
        return self.optimizer.why_not

    def __enter__(self) -> HFGlobalPowerLimitOptimizer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._end()

    # ------------------------------------------------------------------ hooks of the Trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        go_before_reporters(self, sys._getframe(1).f_locals.get("self"))
        self._end()  # an earlier training may have raised
        TrainWatch.look_at_all()
        batch = (batch_size_of(args, state), args.gradient_accumulation_steps)
        if self._profiled not in (None, batch):
            self._optimizer = None
        self._profiled = batch
        self._watch = TrainWatch(self._end)
        self.optimizer.on_train_begin()
        self._run = TrainingRun.join(state, rank_group(), self.monitor, self.optimizer)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._run.end()
        self.optimizer.on_train_end()
        self._run.leave()
        self._end()

    def _values(self, run: TrainingRun) -> dict[str, float]:
        return run.limit_values()

    def _end(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._run.end(wait=False)  # other ranks may be gone
        self._run = TrainingRun()
        if self._optimizer is not None:
            self._optimizer.on_train_end()


def go_before_reporters(callback: Any, handler: Any) -> None:
    """Move a callback before the Trainer's reporters, so that they see the values that it adds to a log.

    A callback has no access to the list of callbacks, but its caller, the handler, has.
    """
    if isinstance(handler, CallbackHandler) and callback in handler.callbacks:
        handler.callbacks.remove(callback)
        flow = [i for i, one in enumerate(handler.callbacks) if isinstance(one, DefaultFlowCallback)]
        handler.callbacks.insert(flow[0] + 1 if flow else 0, callback)  # the flow callback decides when a log is due


def batch_size_of(args: Any, state: Any) -> int:
    """Samples of a training batch on one GPU."""
    return int((state.train_batch_size or args.train_batch_size) // max(1, args.n_gpu))
