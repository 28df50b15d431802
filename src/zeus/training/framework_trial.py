"""A framework's training as a trial of a recurring job: the common part of the batch size callbacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.distributed.group import print_notice, rank_group
from zeus.errors import InputError
from zeus.launcher_env import launcher_env
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.training.summary import ENDINGS, TrainingEnd, summary_of
from zeus.training.training_run import TrainingRun


class FrameworkTrial:
    """Passes the events of a Trainer on to a `BatchSizeOptimizer`.

    Args:
        metric: The Trainer's name of the job's metric.
        optimizer: The optimizer that chose the batch size. Default: one for the trial of `zeus run`. Without either
            nothing is done, so that the script also runs on its own.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None) -> None:
        self._metric = metric
        self._optimizer = optimizer
        self._run: TrainingRun | None = None
        self._training = False
        self._begun = False  # whether an epoch has begun; the metric of an evaluation before it does not count
        self._known = False  # whether the metric was evaluated
        self._others: set[str] = set()  # metrics that were evaluated, to name in an error

    @property
    def monitor(self) -> ZeusMonitor:
        """The optimizer's monitor. Raises InputError if there is no trial."""
        if self._optimizer is None:
            raise InputError("there is no trial: start the script with `zeus run`, or give an optimizer.")
        return self._optimizer.monitor

    @property
    def finished(self) -> bool:
        return self._training and self._optimizer is not None and self._optimizer.training_finished

    def begin(self, trainer: object, steps_per_epoch: int | None = None, epochs_before: int = 0) -> None:
        """Training begins.

        Args:
            trainer: The object that all callbacks of this training receive.
            steps_per_epoch: If they are known.
            epochs_before: Finished epochs in the checkpoint from which training resumes.
        """
        order = launcher_env()
        if self._optimizer is None and order.job_id is not None and order.trial is not None:
            self._optimizer = BatchSizeOptimizer(ZeusMonitor())
        self._training, self._begun = True, False
        self._run = TrainingRun.join(trainer, rank_group())
        if self._optimizer is not None:
            self._optimizer.steps_per_epoch = steps_per_epoch
            self._optimizer.epochs_before = epochs_before
            self._optimizer.on_train_begin()

    def report_batch(self, samples: int, by: object, trainer: object) -> None:
        """A batch of so many samples was computed, for training or for an evaluation."""
        if self._optimizer is not None and self._training:
            self._optimizer.monitor.report_step(samples, by=by, trainer=trainer)

    def step_end(self) -> None:
        if self._optimizer is not None and self._training and self._begun:
            self._optimizer.on_step_end()

    def steps_end(self) -> None:
        """Training steps pause, because an evaluation begins."""
        if self._optimizer is not None and self._training:
            self._optimizer.on_steps_end()

    def epoch_begin(self) -> None:
        """An epoch begins. Raises InputError if the evaluations so far did not have the metric."""
        if (missing := self._missing()) is not None:
            raise missing
        self._begun = True
        if self._optimizer is not None:
            self._optimizer.on_epoch_begin()

    def epoch_end(self) -> None:
        if self._optimizer is not None:
            self._optimizer.on_epoch_end()

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """An evaluation has ended with these metrics. One before the first epoch only shows their names."""
        if self._optimizer is None or not self._training:
            return
        self._others |= set(metrics)
        if self._metric in metrics:
            self._known = True
            if self._begun:
                self._optimizer.on_evaluate(metrics[self._metric])

    def _missing(self) -> InputError | None:
        """The error that says that evaluations did not have the metric. None if they had it, or there was none."""
        if not self._others or self._known:
            return None
        names = ", ".join(sorted(self._others))
        return InputError(f"metric={self._metric!r} was not evaluated. Give one of those that were: {names}.")

    def end(self) -> None:
        """Training has ended. A metric that was never seen fails the trial, but not the training, which is done."""
        if (missing := self._missing()) is not None:
            print_notice(str(missing))
            self._fail(missing)
        if self._training and self._optimizer is not None:
            self._optimizer.on_train_end()
        self._leave(failed=False)

    def failed(self, error: BaseException) -> None:
        """Training has ended with an exception."""
        self._fail(error)
        self._leave(failed=True)

    def _fail(self, error: BaseException) -> None:
        if self._training and self._optimizer is not None:
            self._optimizer.on_exception(error)
        self._training = False

    def _leave(self, *, failed: bool) -> None:
        self._training = False
        run, self._run = self._run, None
        if run is not None:
            if self._optimizer is not None and (outcome := self._optimizer.outcome) is not None:
                run.trial = summary_of(outcome, ENDINGS.get(outcome.ending, TrainingEnd.LEFT), None)
            run.leave(failed=failed)
