"""What a framework's training used at each power limit, and what the best limit saved. It never waits for a sensor.

A training is cut into pieces where its limit changes and where an evaluation or an epoch begins or ends. A piece counts
as soon as its energy is known. With several ranks this is at the end of an epoch.
"""

from __future__ import annotations

import math
from collections import deque

from zeus.cost import ZERO, CostModel, Use
from zeus.distributed.crew import Crew
from zeus.distributed.waiting import WaitRecord
from zeus.job import Kind, Outcome
from zeus.ledger.units import Moved, Units
from zeus.optimizer.power_limit.controller import GlobalPowerLimitOptimizer
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.optimizer.recorder import Recorder
from zeus.settings import Mode
from zeus.tariff.rates import Footprint
from zeus.training.saving import LimitSaving, difference
from zeus.training.summary import Summary, TrainingEnd
from zeus.trial.engine import EpochBegan, EpochEnded, Measured, Terms, TrialEngine
from zeus.trial.knowledge import Trials

WINDOW = "zeus: power limit record"
ANY = 2**53  # epochs: the framework decides when to stop


class LimitRecord:
    """Records one training of a power limit optimizer. Every rank makes the same calls."""

    def __init__(self, optimizer: GlobalPowerLimitOptimizer, ranks: Crew) -> None:
        self._optimizer = optimizer
        self._several = ranks.size > 1
        self._waits = WaitRecord(ranks)
        self._recorder = Recorder(optimizer.monitor, ranks, optimizer.include, WINDOW)
        terms = Terms(target_metric=None, max_epochs=ANY, cost=None, found_watts=optimizer.found_limit)
        self._engine = TrialEngine(terms)
        self._marks: deque[tuple[int, EpochBegan | EpochEnded]] = deque()  # after so many pieces
        self._cuts = self._known = 0  # pieces cut, and those whose energy is known
        self._steps = 0  # since the last cut
        self._is_first = True  # whether no step has ended yet
        self._open = False

    # ------------------------------------------------------------------ what happens

    def begin(self) -> None:
        self._recorder.begin()
        self._open = True

    def epoch_begin(self) -> None:
        self.pause()
        self._marks.append((self._cuts, EpochBegan()))

    def step(self) -> None:
        """A training step has ended."""
        self._steps += 1
        if self._is_first:  # it loads libraries: it is not an example
            self._is_first = False
            self._cut(Kind.STEP, 0)
        elif self._recorder.limit_changed:
            self._cut(Kind.STEP, self._steps)

    def pause(self) -> None:
        """Training steps pause."""
        if self._steps:
            self._cut(Kind.STEP, self._steps)

    def resume(self, evaluated: bool) -> None:
        """Training steps follow, after an evaluation or something else."""
        self.pause()
        self._cut(Kind.EVALUATION, int(evaluated))

    def epoch_end(self) -> None:
        self.pause()
        self._marks.append((self._cuts, EpochEnded()))
        self._learn(self._recorder.ready())

    def end(self, wait: bool = True) -> None:
        """Stop recording. Set `wait` to false if other ranks may be gone."""
        if not self._open:
            return
        self._open = False
        self.pause()
        self._cut(Kind.EVALUATION, 0)
        self._recorder.end()
        self._learn(self._recorder.all() if wait else self._recorder.alone())

    def _cut(self, kind: Kind, count: int) -> None:
        self._recorder.cut(kind, count, wait=False)
        self._cuts, self._steps = self._cuts + 1, 0

    def _learn(self, pieces: list[Measured]) -> None:
        for piece in pieces:
            self._pass_marks()
            self._engine, _ = self._engine.handle(piece)
            self._known += 1
        self._pass_marks()

    def _pass_marks(self) -> None:
        while self._marks and self._marks[0][0] <= self._known:
            self._engine, _ = self._engine.handle(self._marks.popleft()[1])

    # ------------------------------------------------------------------ what is known

    def values(self) -> dict[str, float]:
        """For a framework's log: the chosen limit, and what it has saved so far if that is known and seen."""
        if not self._several:
            self.pause()
            self._learn(self._recorder.ready())
        optimizer, best = self._optimizer, self._optimizer.best_limit
        if best is None or optimizer.mode is not Mode.OPTIMIZE or optimizer.why_not is not None:
            return {}
        saving = limit_saving(optimizer, self._engine.so_far, (), Footprint())  # a log has no money: nothing is priced
        values = {"zeus/power_limit": best}
        if saving is not None and saving.is_seen:  # a number in a log cannot say that it may be chance
            values |= {"zeus/saved_joules": saving.joules, "zeus/saved_joules_error": saving.joules_error}
        return values

    def summary(self) -> Summary:
        optimizer, outcome = self._optimizer, self._recorder.priced(self._engine.so_far, wait=False)
        selector = optimizer.selector
        eta = selector.eta_knob if isinstance(selector, ZeusCost) else None
        known = eta is not None and optimizer.max_watts > 0
        cost = CostModel(eta or 0.0, optimizer.max_watts) if known else None
        size = optimizer.key.batch_size
        return summary_of(optimizer, outcome, TrainingEnd.ENDED, size, cost, self._waits)


def summary_of(
    optimizer: GlobalPowerLimitOptimizer,
    outcome: Outcome,
    ending: TrainingEnd,
    batch_size: int,
    cost: CostModel | None,
    waits: WaitRecord,
    earlier: Trials = (),
) -> Summary:
    """What a run used and what its power limit saved; `earlier` as in `limit_saving`."""
    paid, best, found = outcome.footprint, optimizer.best_limit, optimizer.found_limit
    use = Use(math.nan if outcome.joules is None else outcome.joules, outcome.seconds)
    return Summary(
        ending=ending,
        epochs=outcome.epochs,
        metric=outcome.metric,
        joules=use.joules,
        seconds=use.seconds,
        cost=math.nan if cost is None else cost.of(use),
        limit=best if best is not None else found,
        found_limit=found,
        mode=optimizer.mode,
        saving=limit_saving(optimizer, outcome, earlier, paid),
        why_not=optimizer.why_not,
        batch_size=batch_size,
        next_epoch_cost=outcome.next_epoch_cost,
        include=optimizer.include,
        footprint=paid,
        waiting=waits.so_far(cost, use),
    )


def limit_saving(
    optimizer: GlobalPowerLimitOptimizer, outcome: Outcome, earlier: Trials, paid: Footprint
) -> LimitSaving | None:
    """What a run saved against the limit found, or in observer mode would have saved at the best limit.

    Args:
        optimizer: The optimizer of the run.
        outcome: What the run used.
        earlier: The stretches of earlier trials of the same batch size.
        paid: What the run came to, for money and carbon.
    """
    profile, best, found = optimizer.profile, optimizer.best_limit, optimizer.found_limit
    if profile is None or best is None or found is None or not outcome.joules:
        return None
    units = Units.of([*earlier, outcome.stretches], profile=profile)
    before, after = units.move(outcome, found), units.move(outcome, best)
    if optimizer.mode is Mode.OPTIMIZE and optimizer.why_not is None:
        after = Moved(Use(outcome.joules, outcome.seconds), ZERO, measured=True)
    return None if before is None or after is None else difference(found, best, before, after, paid)
