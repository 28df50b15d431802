"""A framework's Trainer as a trial of a recurring job: what a callback for the batch size does, whatever its words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.env import orders
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor
from zeus.optimizer.batch_size import BatchSizeOptimizer


class FrameworkTrial:
    """Passes a Trainer's word on to a `BatchSizeOptimizer`.

    Args:
        metric: What the Trainer calls the job's metric.
        optimizer: Whose batch size it trains with; default: that of `zeus run`, and without that nothing is done, so
            that the script runs by itself too.
    """

    def __init__(self, metric: str, optimizer: BatchSizeOptimizer | None = None) -> None:
        self._metric = metric
        self._optimizer = optimizer
        self._training = False
        self._begun = False  # an epoch has: an evaluation before that is of no epoch
        self._known = False  # the metric has been evaluated
        self._others: set[str] = set()  # what was evaluated without it: another data set, or the name is wrong

    @property
    def is_following(self) -> bool:
        """Whether there is a trial to follow, and training to follow it."""
        return self._optimizer is not None and self._training

    @property
    def monitor(self) -> ZeusMonitor:
        """The optimizer's."""
        if self._optimizer is None:
            raise InputError("there is no trial to follow: start the script with `zeus run`, or give an optimizer.")
        return self._optimizer.monitor

    @property
    def finished(self) -> bool:
        """Whether the Trainer should stop."""
        return self._training and self._optimizer is not None and self._optimizer.training_finished

    def begin(self, steps_per_epoch: int | None = None) -> None:
        """Training begins, with so many steps in an epoch where that is known."""
        told = orders()
        if self._optimizer is None and told.job_id is not None and told.trial is not None:
            self._optimizer = BatchSizeOptimizer(ZeusMonitor())
        self._training, self._begun = True, False
        if self._optimizer is not None:
            self._optimizer.steps_per_epoch = steps_per_epoch
            self._optimizer.on_train_begin()

    def step_end(self) -> None:
        """A training step has ended."""
        if self._optimizer is not None and self._training and self._begun:
            self._optimizer.on_step_end()

    def steps_end(self) -> None:
        """An evaluation begins."""
        if self._optimizer is not None and self._training:
            self._optimizer.on_steps_end()

    def epoch_begin(self) -> None:
        """An epoch begins."""
        self._need_metric()
        self._begun = True
        if self._optimizer is not None:
            self._optimizer.on_epoch_begin()

    def epoch_end(self) -> None:
        """An epoch's steps have ended."""
        if self._optimizer is not None:
            self._optimizer.on_epoch_end()

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        """An evaluation came to these numbers."""
        if self._optimizer is None or not (self._training and self._begun):
            return
        if self._metric in metrics:
            self._known = True
            self._optimizer.on_evaluate(metrics[self._metric])
        self._others |= set(metrics)

    def _need_metric(self) -> None:
        if self._others and not self._known:
            names = ", ".join(sorted(self._others))
            raise InputError(f"metric={self._metric!r} is not among those evaluated: {names}. Name one of them.")

    def end(self) -> None:
        """Training has ended."""
        self._need_metric()
        if self._training and self._optimizer is not None:
            self._optimizer.on_train_end()
        self._training = False

    def failed(self, error: BaseException) -> None:
        """Training has ended by an exception."""
        if self._training and self._optimizer is not None:
            self._optimizer.on_exception(error)
        self._training = False
