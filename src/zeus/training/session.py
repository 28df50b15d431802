"""One training run of a loader: turns its epochs, steps and metrics into the events of a trial.

    epochs() ──▶ epoch ──▶ steps ──▶ (evaluation) ──▶ metric ──▶ epoch ... ──▶ over

Time and energy count from the first epoch to the metric that reaches the target. `zeus.trial.engine` decides when the
run is over.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from zeus import job
from zeus.client.profile_folder import ProfileFolder
from zeus.cost import Use, fits
from zeus.distributed.group import RankGroup, WaitRecord
from zeus.errors import DeviceError, InputError
from zeus.job import Kind, replace
from zeus.optimizer.counter_notes import CounterNotes
from zeus.optimizer.launched_trial import LaunchedTrial
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.trial_run import TrialRun
from zeus.profile import PowerProfile
from zeus.training.summary import ENDINGS, Summary, TrainingEnd, summary_of
from zeus.trial.engine import Ended, EpochBegan, EpochEnded, Evaluated, Started, Terms, TrialEngine
from zeus.trial.knowledge import Knowledge


class Session:
    """One run.

    Args:
        optimizer: Sets the power limit of the GPUs that its monitor measures.
        terms: The target, the cost and its bound.
        trial: The launcher's trial, if it has opened one.
        group: The ranks of a distributed training.
        quick: Where a script under `zeus profile` leaves what it measured.
        notes: For a trial that a launcher may have to start again.

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
        quick: ProfileFolder | None = None,
        notes: CounterNotes | None = None,
    ) -> None:
        epochs, target, limit = terms.max_epochs, terms.target_metric, terms.cost_limit
        if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1:
            raise InputError(f"max_epochs={epochs!r}: give a whole number of epochs, at least 1.")
        if target is not None and not math.isfinite(target):
            raise InputError(f"target_metric={target!r}: give a number, or None to train for max_epochs.")
        if limit is not None and not limit > 0:
            raise InputError(f"the cost limit {limit!r} must be above 0.")
        self._optimizer = optimizer
        self._group: RankGroup = group or RankGroup()
        self._trial = trial
        self._known = Knowledge() if trial is None else trial.known
        if optimizer.profile is not None and (step := _per_step(optimizer.profile, optimizer.limit_in_use)) is not None:
            self._known = replace(self._known, step=step)
        self._run = TrialRun(
            TrialEngine(replace(terms, found_watts=optimizer.found_limit), self._known),
            optimizer.monitor,
            self._group,
            optimizer.include,
            ask=(lambda question: fits(question.cost, limit)) if trial is None else trial.keep_going,
            tell_epoch=(lambda use: None) if trial is None else trial.tell_epoch,
            quick=quick,
            notes=notes,
        )
        self._waits = WaitRecord(self._group)
        self._ending = TrainingEnd.RUNNING
        self._begun = False
        self._in_epochs = False
        self._in_steps = False
        self._pass = 0
        self._reported = False  # whether this epoch has a metric
        self._told = False  # whether the trial was told its outcome

    # ------------------------------------------------------------------ epochs

    def epochs(self, done: int = 0) -> Iterator[int]:
        """Iterate over the epochs until the run is over.

        Args:
            done: Finished epochs in the checkpoint that the script has loaded.

        Raises:
            InputError: The epochs were used already, or `done` is not a number of epochs.
        """
        if self._begun:
            raise InputError("epochs() was used already: make a new loader for another run.")
        if isinstance(done, bool) or not isinstance(done, int) or done < 0:
            raise InputError(f"done={done!r}: give the number of epochs that the checkpoint has behind it, 0 or more.")
        self._begun = True
        return self._epochs(done)

    def _epochs(self, done: int) -> Iterator[int]:
        self._optimizer.on_train_begin()
        self._run.begin()
        self._in_epochs = True
        try:
            self._resume(done)
            self._run.feed(Started())
            while self._epoch_begins():
                yield self._run.engine.epochs
                self._epoch_ends()
            self._ending = ENDINGS[self._run.engine.ending or job.Ending.NOT_CONVERGED]
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
            run.feed(Ended(job.Ending.NOT_CONVERGED))

    def _epoch_begins(self) -> bool:
        self._reported = False
        self._run.feed(EpochBegan())
        return not self._run.is_over

    def _epoch_ends(self) -> None:
        self.end_steps()
        if not self._run.is_over:
            self._run.cut(Kind.EVALUATION, 0)
            self._run.feed(EpochEnded())

    def _end(self) -> None:
        """End the run. If its loop was left by break or by an exception, do not wait for other ranks."""
        left = self._ending is TrainingEnd.RUNNING and not self._run.is_over
        try:
            self.end_steps()
            self._in_epochs = False
            self._run.close(alone=left)
        finally:
            self._optimizer.on_train_end()
        if left:
            self._ending = TrainingEnd.LEFT
        if not self._told:
            self._tell(self._run.outcome or self._run.engine.so_far)

    # ------------------------------------------------------------------ steps

    def begin_steps(self) -> int:
        """A pass of training steps begins. Returns its number. A pass outside the run's epochs is not measured."""
        self.end_steps()
        self._pass += 1
        if self._in_epochs and not self._run.is_over:
            self._in_steps = True
            self._run.recorder.cut(Kind.EVALUATION, 0, wait=False)
            self._optimizer.on_epoch_begin()
        return self._pass

    def step_end(self) -> bool:
        """A training step has ended. Returns whether the epoch goes on."""
        if not self._in_steps:
            return True
        self._optimizer.on_step_end()
        self._run.step()
        return not self._run.is_over

    def end_steps(self, which: int | None = None) -> None:
        """The pass has ended, or its loop was left. If another pass has begun since, nothing is done."""
        if not self._in_steps or which not in (None, self._pass):
            return
        self._in_steps = False
        self._run.recorder.cut_steps()
        self._optimizer.on_epoch_end()

    def report_metric(self, metric: float, higher_is_better: bool | None = None) -> bool:
        """Report the validation metric of this epoch. Returns whether the target is reached, which ends the run."""
        value, engine = self._agreed(float(metric)), self._run.engine
        if self._run.is_over or not self._in_epochs:
            return self._ending is TrainingEnd.REACHED
        if higher_is_better is not None:
            self._run.engine = replace(engine, terms=replace(engine.terms, higher_is_better=higher_is_better))
        self.end_steps()
        self._run.cut(Kind.EVALUATION, 0 if self._reported else 1)
        self._reported = True
        if value is None:
            return False
        self._run.feed(Evaluated(value))
        if self._run.engine.ending is job.Ending.CONVERGED and self._run.outcome is not None:
            self._ending, self._told = TrainingEnd.REACHED, True
            self._tell(self._run.outcome)
        return self._ending is TrainingEnd.REACHED

    def _agreed(self, metric: float) -> float | None:
        """The first rank's metric. None if a rank is lost: by metrics of their own, ranks would end at other epochs."""
        try:
            return self._group.broadcast(metric)
        except DeviceError:
            return None

    # ------------------------------------------------------------------ the end

    def _tell(self, outcome: job.Outcome) -> None:
        if self._trial is not None:
            self._trial.over(outcome)

    @property
    def summary(self) -> Summary:
        """What the run used so far, or in total once it is over."""
        outcome = self._run.outcome or self._run.engine.so_far
        if self._run.outcome is None:  # it still runs, so nothing is waited for
            outcome = self._run.recorder.priced(outcome, wait=False)
        return summary_of(
            outcome,
            self._ending,
            self._optimizer,
            batch_size=self._run.engine.terms.batch_size or 0,
            cost=self._run.engine.terms.cost,
            include=self._optimizer.include,
            waits=self._waits,
            earlier=self._known.trials,
        )


def _per_step(profile: PowerProfile, limit: float | None) -> Use | None:
    for one in profile.slices:
        if one.limit_watts == limit:
            return Use(one.joules / one.steps, one.seconds / one.steps)
    return None
