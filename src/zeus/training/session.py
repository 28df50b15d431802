"""One training run, whatever the framework: epochs, metric, early stop, and what it cost.

    epochs() ──▶ epoch ──▶ steps ──▶ (evaluation) ──▶ report ──▶ epoch ... ──▶ over
                   │                                    │
                   └── not begun: `keep_going` says       └── the target is reached
                       no, or it was the last

The clock runs from the first epoch to the report that reaches the target.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator

from zeus.cost import CostModel
from zeus.env import Mode, Prices
from zeus.errors import InputError
from zeus.monitor import Measurement, ZeusMonitor
from zeus.optimizer.batch_size.stopping import fits
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.crew import Alone, Crew
from zeus.profile import PowerProfile
from zeus.training.saving import Saving, compare, difference
from zeus.training.summary import Ending, Standing, Summary, Use

log = logging.getLogger(__name__)

_RUN, _EPOCH, _TRAIN = "zeus: run", "zeus: epoch", "zeus: training steps"
_NOTHING = Use(0.0, 0.0)


class Session:
    """Keeps the books of one run and decides when it ends.

    Args:
        monitor: Measures the GPUs.
        optimizer: Sets their power limit.
        cost: Equation 2; None where MAXPOWER is not known.
        max_epochs: At most so many.
        batch_size: For the summary.
        target_metric: The run ends when it is reached; None: after max_epochs.
        higher_is_better: Whether the metric should go up.
        keep_going: Asked before each epoch, the first one too, on the rank that writes: all ranks have it or none.
        over: Told the summary once, when the run is over, before anything else can go wrong; on every rank.
        steps_per_epoch: Where it is known before the first epoch.
        prices: For the saving.
        crew: The ranks of a distributed training.
        first: Gives every rank the first one's number.
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
        keep_going: Callable[[Standing], bool] | None = None,
        over: Callable[[Summary], None] = lambda summary: None,
        steps_per_epoch: int | None = None,
        prices: Prices | None = None,
        crew: Crew | None = None,
        first: Callable[[float], float] = lambda value: value,
    ) -> None:
        if isinstance(max_epochs, bool) or not isinstance(max_epochs, int) or max_epochs < 1:
            raise InputError(f"max_epochs={max_epochs!r}: give a whole number of epochs, at least 1.")
        if target_metric is not None and not math.isfinite(target_metric):
            raise InputError(f"target_metric={target_metric!r}: give a number, or None to train for max_epochs.")
        self._monitor = monitor
        self._optimizer = optimizer
        self._cost = cost
        self._crew: Crew = crew or Alone()
        self._first = first
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.target_metric = target_metric
        self.higher_is_better = higher_is_better
        self._keep_going = keep_going
        self._over = over
        self._steps_per_epoch = steps_per_epoch
        self._prices = prices or Prices()
        self._ending = Ending.RUNNING
        self._metric: float | None = None
        self._epochs = 0
        self._steps = 0
        self._epoch_steps = 0
        self._parts: list[tuple[Measurement, list[Measurement]]] = []  # each epoch, and its passes of training steps
        self._uses: list[tuple[Use, Use]] = []  # the same over all ranks, as far as anybody asked
        self._next_epoch_cost: float | None = None
        self._totals: tuple[float, float, float, float] | None = None  # joules and seconds of all, and of the steps
        self._training: list[Measurement] = []  # the passes of this epoch
        self._trained: list[Measurement] = []  # the passes of all epochs, also of one that was left
        self._whole: Measurement | None = None
        self._in_epochs = False
        self._in_steps = False
        self._pass = 0

    # ------------------------------------------------------------------ epochs

    def epochs(self) -> Iterator[int]:
        """The epochs of this run, as long as it should go on."""
        if self._epochs or self._ending is not Ending.RUNNING:
            raise InputError("this run's epochs() was used already; make a new loader for another run.")
        self._optimizer.on_train_begin()
        self._monitor.begin_window(_RUN, restart=True)
        self._in_epochs = True
        try:
            while self._ending is Ending.RUNNING:
                self._ending = self._look_ahead()
                if self._ending is not Ending.RUNNING:
                    break
                self._monitor.begin_window(_EPOCH, restart=True)
                self._training, self._epoch_steps = [], 0
                yield self._epochs
                self._epochs += 1
                if self._whole is None:
                    self._parts.append((self._close(_EPOCH), self._training))
        finally:
            self._end()

    def _look_ahead(self) -> Ending:
        """Whether to go on; on several ranks the first one's word counts."""
        ending = Ending.RUNNING
        if self._epochs >= self.max_epochs:
            ending = Ending.MAX_EPOCHS
        elif self._keep_going is not None:
            standing = self.standing()
            if self._crew.writes and not self._keep_going(standing):
                ending = Ending.COST_LIMIT
            self._next_epoch_cost = standing.next_epoch_cost
        return list(Ending)[int(self._first(float(list(Ending).index(ending))))]

    def _end(self) -> None:
        if self._ending is Ending.RUNNING:
            self._ending = Ending.LEFT
        self._in_epochs = False
        try:
            self.end_steps()
            if self._whole is None:
                self._whole = self._close(_RUN)
        finally:
            self._optimizer.on_train_end()
        if self._ending is not Ending.REACHED:
            self._settle()

    def _settle(self) -> None:
        """The run is over."""
        if self._ending is not Ending.LEFT and self._whole is not None:  # who left by an exception waits for nobody
            self._totals = (*self._crew.agree(*_sums([self._whole])), *self._crew.agree(*_sums(self._trained)))
        self._over(self.summary)

    def _close(self, window: str) -> Measurement:
        """Measure it even where the GPU's work failed: what failed is what the user must see, not what follows."""
        try:
            return self._monitor.end_window(window)
        except RuntimeError as failed:
            log.warning("the GPU cannot be waited for: %s", failed)
            return self._monitor.end_window(window, sync_execution=False)

    # ------------------------------------------------------------------ steps

    def begin_steps(self) -> int:
        """A pass of training steps begins; its number. Outside the run's epochs it is none of the run's."""
        self.end_steps()
        self._pass += 1
        if self._in_epochs and self._ending is Ending.RUNNING:
            self._in_steps = True
            self._monitor.begin_window(_TRAIN, restart=True)
            self._optimizer.on_epoch_begin()
        return self._pass

    def step_end(self) -> None:
        """A training step has ended."""
        if self._in_steps:
            self._steps += 1
            self._epoch_steps += 1
            self._optimizer.on_step_end()

    def end_steps(self, which: int | None = None) -> None:
        """The pass has ended, or the loop over it was left; one that another has followed ended with that."""
        if not self._in_steps or which not in (None, self._pass):
            return
        self._in_steps = False
        self._optimizer.on_epoch_end()
        self._training.append(self._close(_TRAIN))
        self._trained.append(self._training[-1])

    def report_metric(self, metric: float, higher_is_better: bool | None = None) -> bool:
        """The validation metric after this epoch; whether the target is reached. The run's clock stops there."""
        better = self.higher_is_better if higher_is_better is None else higher_is_better
        value = self._first(float(metric))
        self._metric = value
        if self._ending is not Ending.RUNNING or self.target_metric is None or not self._in_epochs:
            return self._ending is Ending.REACHED
        if value >= self.target_metric if better else value <= self.target_metric:
            self._ending = Ending.REACHED
            self.end_steps()
            self._parts.append((self._close(_EPOCH), self._training))
            self._whole = self._close(_RUN)
            self._settle()
        return self._ending is Ending.REACHED

    # ------------------------------------------------------------------ cost

    def standing(self) -> Standing:
        """Where the run stands before its next epoch. Every rank asks at the same epochs."""
        for epoch, training in self._parts[len(self._uses) :]:
            whole = Use(*self._crew.agree(*_sums([epoch])))
            self._uses.append((whole, Use(*self._crew.agree(*_sums(training)))))
        spent = _NOTHING
        for whole, _ in self._uses:
            spent = spent.plus(whole)
        cost = sum(self._cost_of(whole) for whole, _ in self._uses)
        following, settled = self._following()
        return Standing(self._epochs, self._metric, spent, following, settled, cost, self._cost_of(following))

    def _cost_of(self, use: Use) -> float:
        cost = self._cost.cost(use.joules, use.seconds) if self._cost is not None else 0.0
        return cost if math.isfinite(cost) else 0.0

    def _following(self) -> tuple[Use, bool]:
        """The next epoch (EpochCost): profiled training at the limit in use and the last evaluation, if that is known.

        Else it is like the last one. Of the first epoch only what a profile known before says; nothing without one.
        """
        epoch, training = self._uses[-1] if self._uses else (_NOTHING, _NOTHING)
        steps = self._epoch_steps if self._uses else self._steps_per_epoch
        profile, limit = self._optimizer.profile, self._limit_in_use()
        known = bool(self._uses) and math.isfinite(epoch.joules)
        step = None if profile is None or limit is None else _per_step(profile, limit)
        if step is None or not steps or (self._uses and not training.seconds):
            return epoch, known and profile is None and not self._optimizer.is_profiling
        return Use(step[0] * steps, step[1] * steps).plus(epoch.minus(training)), known

    def _limit_in_use(self) -> float | None:
        if self._optimizer.mode is Mode.OPTIMIZE and self._optimizer.why_not is None:
            return self._optimizer.best_limit
        return self._optimizer.found_limit

    # ------------------------------------------------------------------ the end

    @property
    def summary(self) -> Summary:
        """What the run used so far, or in all once it is over."""
        if self._totals is not None:
            joules, seconds, *steps = self._totals
        else:
            joules, seconds = _sums([self._whole] if self._whole is not None else [e for e, _ in self._parts])
            steps = list(_sums(self._trained))
        cost = self._cost.cost(joules, seconds) if self._cost is not None else math.nan
        best, found = self._optimizer.best_limit, self._optimizer.found_limit
        return Summary(
            self._ending,
            self._epochs + (self._ending is Ending.REACHED and self._epochs < len(self._parts)),
            self._metric,
            joules,
            seconds,
            cost,
            best if best is not None else found,
            found,
            self._optimizer.mode,
            self._saving(joules, seconds, *steps),
            self._optimizer.why_not,
            self.batch_size,
            self._next_epoch_cost if self._ending is Ending.COST_LIMIT else None,
        )

    def _saving(self, joules: float, seconds: float, energy: float, time: float) -> Saving | None:
        """What the run used, or (only observed) what it would have at the best limit, against the limit found.

        What it would have used at a limit is its steps times the profile's energy per step; evaluation and whatever
        else lies between the steps is taken to scale with them. What it used includes the steps that were profiled.
        """
        profile, best, found = self._optimizer.profile, self._optimizer.best_limit, self._optimizer.found_limit
        if profile is None or best is None or found is None or not self._steps or math.isnan(joules):
            return None
        if not (energy > 0 and time > 0):
            return None
        at_found = _per_step(profile, found)
        if at_found is None:
            return None
        joules_found = at_found[0] * self._steps * joules / energy
        seconds_found = at_found[1] * self._steps * seconds / time
        if best != found and self._optimizer.mode is Mode.OPTIMIZE and self._optimizer.why_not is None:
            return difference(found, best, joules_found, seconds_found, joules, seconds, self._prices)
        return compare(profile, found, best, joules_found, seconds_found, self._prices)


def _sums(measured: list[Measurement]) -> tuple[float, float]:
    return sum(m.total_energy for m in measured), sum(m.seconds for m in measured)


def _per_step(profile: PowerProfile, limit: float) -> tuple[float, float] | None:
    for one in profile.slices:
        if one.limit_watts == limit:
            return one.joules / one.steps, one.seconds / one.steps
    return None


def within(cost_limit: float) -> Callable[[Standing], bool]:
    """Go on as long as the next epoch is predicted to stay within this cost."""
    if not cost_limit > 0:
        raise InputError(f"the cost limit {cost_limit!r} must be above 0.")
    return lambda standing: fits(standing.next_cost, cost_limit)
