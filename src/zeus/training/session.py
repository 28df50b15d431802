"""One training run of a loader: turns its epochs, steps and metrics into the events of a trial.

    epochs() ──▶ epoch ──▶ steps ──▶ (evaluation) ──▶ metric ──▶ epoch ... ──▶ over

Time and energy count from the first epoch to the metric that reaches the target. `zeus.trial.engine` decides when the
run is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from zeus import job
from zeus.cost import ZERO, CostModel, Use, fits
from zeus.distributed.crew import Alone, Crew
from zeus.distributed.waiting import WaitRecord
from zeus.errors import DeviceError, InputError
from zeus.job import Kind
from zeus.jobs.profile_folder import ProfileFolder
from zeus.monitor import ZeusMonitor
from zeus.optimizer.counter_notes import CounterNotes
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.recorder import Recorder
from zeus.optimizer.trial_run import TrialRun
from zeus.profile import PowerProfile
from zeus.settings import Mode
from zeus.training.limit_record import summary_of
from zeus.training.summary import Summary, TrainingEnd
from zeus.trial.engine import AskPolicy, Ended, EpochBegan, EpochEnded, Evaluated, Started, Terms, TrialEngine
from zeus.trial.knowledge import Knowledge

ENDINGS = {
    job.Ending.CONVERGED: TrainingEnd.REACHED,
    job.Ending.NOT_CONVERGED: TrainingEnd.MAX_EPOCHS,
    job.Ending.STOPPED: TrainingEnd.COST_LIMIT,
}


class Session:
    """One run.

    Args:
        monitor: Measures the GPUs.
        optimizer: Sets their power limit.
        cost: Equation 2; None if MAXPOWER is not known.
        max_epochs: Most epochs to train for.
        batch_size: For the summary.
        target_metric: The run ends when the metric reaches it. None: after max_epochs.
        higher_is_better: Whether a higher metric is better.
        cost_limit: Cost limit of the trial; None: it has none.
        keep_going: Asked before each epoch, and inside an epoch that would exceed the cost limit. Called on the rank
            that writes. Default: the cost limit decides.
        tell_epoch: Called with what an epoch uses, on the rank that writes.
        over: Called once with the outcome of the run, on every rank.
        steps_per_epoch: If it is known before the first epoch.
        before: What earlier starts of this trial used.
        micro_batch_size: Samples on each GPU at once, if gradients are accumulated.
        known: What earlier trials of the job tell about this one's epochs.
        crew: The ranks of a distributed training.
        quick: Where a script under `zeus profile` leaves what it measured.
        first: Returns the first rank's number on every rank.
        so_far: What the trial had used when an earlier start last reported.
        notes: For a trial that a launcher may have to start again.
    """

    def __init__(
        self,
        monitor: ZeusMonitor,
        optimizer: GlobalPowerLimitOptimizer,
        cost: CostModel | None,
        *,
        max_epochs: int,
        batch_size: int,
        target_metric: float | None = None,
        higher_is_better: bool = True,
        cost_limit: float | None = None,
        keep_going: Callable[[AskPolicy], bool] | None = None,
        tell_epoch: Callable[[Use], None] = lambda use: None,
        over: Callable[[job.Outcome], None] = lambda outcome: None,
        steps_per_epoch: int | None = None,
        before: Use = ZERO,
        micro_batch_size: int | None = None,
        known: Knowledge | None = None,
        crew: Crew | None = None,
        first: Callable[[float], float] = lambda value: value,
        quick: ProfileFolder | None = None,
        so_far: job.Outcome | None = None,
        notes: CounterNotes | None = None,
    ) -> None:
        if isinstance(max_epochs, bool) or not isinstance(max_epochs, int) or max_epochs < 1:
            raise InputError(f"max_epochs={max_epochs!r}: give a whole number of epochs, at least 1.")
        if target_metric is not None and not math.isfinite(target_metric):
            raise InputError(f"target_metric={target_metric!r}: give a number, or None to train for max_epochs.")
        if cost_limit is not None and not cost_limit > 0:
            raise InputError(f"the cost limit {cost_limit!r} must be above 0.")
        self._optimizer = optimizer
        self._cost = cost
        self._crew: Crew = crew or Alone()
        self._first = first
        self._over = over
        self.batch_size = batch_size
        known = known or Knowledge()
        step = None if optimizer.profile is None else _per_step(optimizer.profile, self._limit_in_use())
        if step is not None:
            known = replace(known, step=step)
        terms = Terms(
            target_metric=target_metric,
            higher_is_better=higher_is_better,
            max_epochs=max_epochs,
            cost=cost,
            cost_limit=cost_limit,
            batch_size=batch_size,
            steps_per_epoch=steps_per_epoch,
            found_watts=optimizer.found_limit,
            before=before,
            micro_batch_size=micro_batch_size,
        )
        self._known = known
        self._run = TrialRun(
            TrialEngine(terms, known),
            Recorder(monitor, self._crew, optimizer.include),
            self._crew,
            ask=keep_going or (lambda question: fits(question.cost, cost_limit)),
            tell_epoch=tell_epoch,
            quick=quick,
            notes=notes,
        )
        self._so_far, self._is_trial = so_far, notes is not None
        self._waits = WaitRecord(self._crew)
        self._ending = TrainingEnd.RUNNING
        self._begun = False
        self._in_epochs = False
        self._in_steps = False
        self._pass = 0
        self._reported = False  # whether this epoch has a metric
        self._told = False  # whether `over` was called

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
        self._run.recorder.begin()
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
        if self._is_trial:
            run.resume(done, self._so_far)
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
            self._over(self._run.outcome or self._run.engine.so_far)

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
        self._run.cut_steps()
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
            self._over(self._run.outcome)
        return self._ending is TrainingEnd.REACHED

    def _agreed(self, metric: float) -> float | None:
        """The first rank's metric. None if a rank is lost: by metrics of their own, ranks would end at other epochs."""
        try:
            return self._first(metric)
        except DeviceError:
            return None

    # ------------------------------------------------------------------ the end

    def _limit_in_use(self) -> float | None:
        if self._optimizer.mode is Mode.OPTIMIZE and self._optimizer.why_not is None:
            return self._optimizer.best_limit
        return self._optimizer.found_limit

    @property
    def summary(self) -> Summary:
        """What the run used so far, or in total once it is over."""
        outcome = self._run.outcome or self._run.engine.so_far
        if self._run.outcome is None:  # it still runs, so nothing is waited for
            outcome = self._run.recorder.priced(outcome, wait=False)
        return summary_of(
            self._optimizer, outcome, self._ending, self.batch_size, self._cost, self._waits, self._known.trials
        )


def _per_step(profile: PowerProfile, limit: float | None) -> Use | None:
    for one in profile.slices:
        if one.limit_watts == limit:
            return Use(one.joules / one.steps, one.seconds / one.steps)
    return None
