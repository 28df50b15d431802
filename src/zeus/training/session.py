"""One training run of a loader: turns its epochs, steps and metrics into the events of a trial.

    NEW ──epochs()──▶ BETWEEN ◀──▶ STEPS
                         └── the run is over, or its loop was left ──▶ OVER

Time and energy count from the first epoch to the metric that reaches the target. `zeus.trial.engine` decides when the
run is over.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from enum import Enum, auto
from typing import Any

from zeus.cost import fits
from zeus.distributed.group import RankGroup, WaitRecord
from zeus.errors import InputError
from zeus.job import Ending, Kind, replace
from zeus.optimizer.launched_trial import LaunchedTrial
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.trial_run import TrialRun
from zeus.training.summary import Summary, summary_of
from zeus.trial.engine import Ended, EpochBegan, EpochEnded, Started, Terms, TrialEngine
from zeus.trial.knowledge import Knowledge


class SessionStage(Enum):
    """Where a run is (drawn above)."""

    NEW = auto()
    BETWEEN = auto()  # in its epochs, but not in a pass of training steps
    STEPS = auto()
    OVER = auto()


class Session:
    """One run.

    Args:
        optimizer: Sets the power limit of the GPUs that its monitor measures.
        terms: The target, the cost and its bound.
        trial: The launcher's trial, if it has opened one.
        group: The ranks of a distributed training.

    Raises:
        InputError: A term is not valid.
    """

    def __init__(
        self,
        optimizer: GlobalPowerLimitOptimizer,
        terms: Terms,
        trial: LaunchedTrial | None = None,
        *,
        group: RankGroup | None = None,
    ) -> None:
        epochs, target, limit = terms.max_epochs, terms.target_metric, terms.cost_limit
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise InputError(f"max_epochs={epochs!r}: give a whole number of epochs, at least 1.")
        if target is not None and not math.isfinite(target):
            raise InputError(f"target_metric={target!r}: give a number, or None to train for max_epochs.")
        if limit is not None and not limit > 0:
            raise InputError(f"the cost limit {limit!r} must be above 0.")
        ranks = group or RankGroup()
        self._optimizer, self._trial = optimizer, trial
        known = Knowledge() if trial is None else trial.known
        if optimizer.profile is not None and (step := optimizer.profile.step_at(optimizer.limit_in_use)) is not None:
            known = replace(known, step=step)
        self._run = TrialRun(
            TrialEngine(replace(terms, found_watts=optimizer.found_limit), known),
            optimizer.monitor,
            ranks,
            optimizer.include,
            ask=(lambda question: fits(question.cost, limit)) if trial is None else trial.keep_going,
            tell_epoch=(lambda use: None) if trial is None else trial.tell_epoch,
            orders=None if trial is None else trial.orders,
        )
        self._waits = WaitRecord(ranks)
        self._stage = SessionStage.NEW
        self._pass = 0  # of training steps
        self._evaluations = 0  # of this epoch

    # ------------------------------------------------------------------ epochs

    def epochs(self, done: int = 0) -> Iterator[int]:
        """Iterate over the epochs until the run is over.

        Args:
            done: Finished epochs in the checkpoint that the script has loaded.

        Raises:
            InputError: The epochs were used already, or `done` is not a number of epochs.
        """
        if self._stage is not SessionStage.NEW:
            raise InputError("epochs() was used already: make a new loader for another run.")
        if isinstance(done, bool) or not isinstance(done, int) or done < 0:
            raise InputError(f"done={done!r}: give the number of epochs that the checkpoint has behind it, 0 or more.")
        self._stage = SessionStage.BETWEEN
        return self._epochs(done)

    def _epochs(self, done: int) -> Iterator[int]:
        self._optimizer.on_train_begin()
        self._run.begin()
        try:
            self._resume(done)
            self._run.feed(Started())
            while self._epoch_begins():
                yield self._run.engine.epochs
                self._epoch_ends()
        finally:
            self._end()

    def _resume(self, done: int) -> None:
        """Continue a trial that was started before, or else a training of which nothing is known but its epochs."""
        run, engine = self._run, self._run.engine
        if self._trial is not None:
            run.resume(done, self._trial.so_far)
        else:
            run.engine = replace(engine, epochs=done, terms=replace(engine.terms, epochs_before=done))
        if done and done >= engine.terms.max_epochs:
            run.feed(Ended(Ending.NOT_CONVERGED))

    def _epoch_begins(self) -> bool:
        self._evaluations = 0
        self._run.feed(EpochBegan())
        return not self._run.is_over

    def _epoch_ends(self) -> None:
        self.end_steps()
        if not self._run.is_over:
            self._run.cut(Kind.EVALUATION, 0)
            self._run.feed(EpochEnded())

    def _end(self) -> None:
        """End the run. If its loop was left by break or by an exception, do not wait for other ranks."""
        has_told = self._run.outcome is not None and self._run.outcome.ending is Ending.CONVERGED
        try:
            self.end_steps()
            self._stage = SessionStage.OVER
            self._run.close(alone=not self._run.is_over)
        finally:
            self._optimizer.on_train_end()
        if self._trial is not None and not has_told:
            self._trial.over(self._run.outcome or self._run.engine.so_far)

    # ------------------------------------------------------------------ steps

    def begin_steps(self) -> int:
        """A pass of training steps begins. Returns its number. A pass outside the run's epochs is not measured."""
        self.end_steps()
        self._pass += 1
        if self._stage is SessionStage.BETWEEN and not self._run.is_over:
            self._stage = SessionStage.STEPS
            self._run.recorder.cut(Kind.EVALUATION, 0, wait=False)
            self._optimizer.on_epoch_begin()
        return self._pass

    def step_end(self) -> bool:
        """A training step has ended. Returns whether the epoch goes on."""
        if self._stage is not SessionStage.STEPS:
            return True
        self._optimizer.on_step_end()
        self._run.step()
        return not self._run.is_over

    def end_steps(self, which: int | None = None) -> None:
        """The pass has ended, or its loop was left. If another pass has begun since, nothing is done."""
        if self._stage is SessionStage.STEPS and which in (None, self._pass):
            self._stage = SessionStage.BETWEEN
            self._run.recorder.cut_steps()
            self._optimizer.on_epoch_end()

    def report_metric(self, metric: Any, higher_is_better: bool | None = None) -> None:
        """Report the validation metric of this epoch. The run ends if it reaches the target."""
        evaluated, run = self._run.evaluated(metric), self._run
        if self._stage is SessionStage.NEW and self._pass:
            warnings.warn(
                "this training does not use epochs(): nothing is measured, and no power limit is set. Train in "
                "`for epoch in loader.epochs():`.",
                RuntimeWarning,
                stacklevel=3,
            )
        if run.is_over or self._stage in (SessionStage.NEW, SessionStage.OVER):
            return
        if higher_is_better is not None:
            run.engine = replace(run.engine, terms=replace(run.engine.terms, higher_is_better=higher_is_better))
        self.end_steps()
        run.cut(Kind.EVALUATION, 0 if self._evaluations else 1)
        self._evaluations += 1
        run.feed(*evaluated)
        if self._trial is not None and run.outcome is not None and run.outcome.ending is Ending.CONVERGED:
            self._trial.over(run.outcome)

    # ------------------------------------------------------------------ the end

    @property
    def summary(self) -> Summary:
        """What the run used so far, or in total once it is over."""
        outcome, engine = self._run.outcome, self._run.engine
        if outcome is None:  # it still runs, so nothing is waited for
            outcome = self._run.recorder.priced(engine.so_far, wait=False)
        is_open = self._stage is not SessionStage.OVER and outcome.ending is Ending.LOST
        return summary_of(
            outcome,
            Ending.OPEN if is_open else outcome.ending,
            self._optimizer,
            batch_size=engine.terms.batch_size or 0,
            cost=engine.terms.cost,
            include=self._optimizer.include,
            waits=self._waits,
            earlier=engine.known.trials,
        )
