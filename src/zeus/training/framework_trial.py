"""A framework's training as a trial of a recurring job: what the batch size callbacks share.

The run of the training (`zeus.training.training_run`) passes on its epochs and steps. The callback passes on metrics.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.distributed.group import print_notice
from zeus.errors import InputError
from zeus.launcher_env import launcher_env
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.training.summary import Summary, summary_of


class FrameworkTrial:
    """The trial of a Trainer, by the name of its metric.

    Args:
        metric: The Trainer's name of the job's metric.
        optimizer: The optimizer that chose the batch size. Default: one for the trial of `zeus run`. Without either
            there is no trial, so that the script also runs on its own.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None) -> None:
        self._metric = metric
        self._optimizer = optimizer
        self._is_open = False  # whether its training runs
        self._begun = False  # whether an epoch has begun; the metric of an evaluation before it does not count
        self._evaluated: set[str] = set()  # names of metrics

    @property
    def optimizer(self) -> BatchSizeOptimizer:
        """The optimizer that chose the batch size. Raises InputError if there is no trial."""
        if self._optimizer is None:
            raise InputError("there is no trial: start the script with `zeus run`, or give an optimizer.")
        return self._optimizer

    @property
    def is_over(self) -> bool:
        """Whether the training should end."""
        return self._is_open and self.optimizer.training_finished

    @property
    def summary(self) -> Summary | None:
        """How the trial ended and what it used. None before that."""
        outcome = self.optimizer.outcome
        return None if outcome is None else summary_of(outcome, outcome.ending, None)

    def begin(self, steps_per_epoch: int | None = None, epochs_before: int = 0) -> bool:
        """Training begins. Returns whether there is a trial.

        Args:
            steps_per_epoch: If they are known.
            epochs_before: Finished epochs in the checkpoint from which training resumes.
        """
        order = launcher_env()
        if self._optimizer is None and order.job_id is not None and order.trial is not None:
            self._optimizer = BatchSizeOptimizer(ZeusMonitor())
        if self._optimizer is None:
            return False
        self._is_open, self._begun = True, False
        self._optimizer.steps_per_epoch, self._optimizer.epochs_before = steps_per_epoch, epochs_before
        self._optimizer.on_train_begin()
        return True

    def epoch_begin(self) -> None:
        """An epoch begins. Raises InputError if the evaluations so far did not have the metric."""
        if (missing := self._missing()) is not None:
            raise missing
        self._begun = True
        self.optimizer.on_epoch_begin()

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """An evaluation has ended with these metrics. One before the first epoch only shows their names."""
        if not self._is_open:
            return
        self._evaluated |= set(metrics)
        if self._metric in metrics and self._begun:
            self.optimizer.on_evaluate(metrics[self._metric])

    def _missing(self) -> InputError | None:
        """The error that says that evaluations did not have the metric. None if they had it, or there was none."""
        if not self._evaluated or self._metric in self._evaluated:
            return None
        names = ", ".join(sorted(self._evaluated))
        return InputError(f"metric={self._metric!r} was not evaluated. Give one of those that were: {names}.")

    def end(self) -> None:
        """Training has ended. A metric that was never seen fails the trial, but not the training, which is done."""
        if (missing := self._missing()) is not None and self._is_open:
            print_notice(str(missing))
            self.failed(missing)
        if self._is_open:
            self._is_open = False
            self.optimizer.on_train_end()

    def failed(self, error: BaseException) -> None:
        """Training has ended with an exception."""
        if self._is_open:
            self._is_open = False
            self.optimizer.on_exception(error)
