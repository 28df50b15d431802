"""One trial as a pure state machine: events in, actions out. Every way of running a trial is a shell around it.

    Started ──▶ BETWEEN ──EpochBegan──▶ TRAINING ──EpochEnded──▶ AWAITING ──EpochBegan──▶ TRAINING (without a metric)
                   ▲                       │                        │
                   │                   Evaluated                Evaluated
                   │                       ▼                        │
                   ├──────EpochEnded── EVALUATED                    │
                   └────────────────────────────────────────────────┘
    each way out of an epoch:   close it ──▶ AskPolicy ──▶ PolicyAnswered(no) ──▶ over (STOPPED)
    from anywhere:              the target is reached, max_epochs are done, or Ended ──▶ over

In TRAINING and EVALUATED each Measured may lead to one AskPolicy an epoch. A trial that is stopped there still goes on
to the end of its loop, and what it uses until then is charged. A trial that is over has an `ending`.

The shells are the loader, the framework callbacks, the watcher of an unmodified script, the five old HTTP routes and
the simulator. They turn what happens into events, and carry out the actions. Only the engine knows when an epoch is
over, what is charged, what the next epoch will cost, when the policy is asked, and how a trial ends.

When the policy is asked:

- before the first epoch, if a profile, an earlier trial or a neighbouring size predicts its cost;
- after each epoch, when its metric is known, or when the next epoch begins without one;
- inside an epoch, at most once, if its steps show that it will not fit under the bound.

Everything from the first epoch on is charged, including evaluation. Set-up is reported, but not charged. A trial that
begins no epoch is charged nothing but what its earlier starts used. Unknown energy never stops a trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from zeus.cost import ZERO, CostModel, Use, fits
from zeus.job import Ending, EpochPoint, JobSpec, Kind, Outcome, UsageSegment, replace
from zeus.job.checks import LEAST, is_number
from zeus.job.spec import is_reached
from zeus.trial.estimate import EpochEstimate, evaluation, first_epoch, next_epoch
from zeus.trial.knowledge import Knowledge

POINTS = 1000  # a longer curve drops every other point
LOOKS = 20  # measurements of steps per epoch, so that a trial passes its bound by only a small part of an epoch


# ---------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Started:
    """Training is about to begin."""


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """An epoch begins."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What some units used since the last such event, at one power limit.

    A count of 0 is for use between units, which is charged too.
    """

    kind: Kind
    count: int
    use: Use
    limit: float | None = None  # None: it changed in between, or cannot be read


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch is over. What it used has been passed as Measured."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The metric is known, during an epoch or after it."""

    metric: float


@dataclass(frozen=True, slots=True)
class SamplesCounted:
    """How many samples an epoch has, as the script reports it."""

    samples: int


@dataclass(frozen=True, slots=True)
class PolicyAnswered:
    """The answer to AskPolicy."""

    go: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The training ended without reaching its target.

    NOT_CONVERGED: it ran to its end. CRASHED: it failed. LOST: it was interrupted, or nobody knows.
    """

    ending: Ending


Event: TypeAlias = Started | EpochBegan | Measured | EpochEnded | Evaluated | SamplesCounted | PolicyAnswered | Ended

# ---------------------------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True)
class AskPolicy:
    """Ask the policy whether the trial may go on, and answer with PolicyAnswered."""

    so_far: Outcome  # with ending LOST: the outcome if nothing more is reported
    cost: float  # the lowest expected cost of the trial after the epoch in question; 0 if unknown


@dataclass(frozen=True, slots=True)
class TellEpoch:
    """What an epoch uses at the current power limit became known, or changed."""

    use: Use


@dataclass(frozen=True, slots=True)
class Finish:
    """The trial is over."""

    outcome: Outcome


Action: TypeAlias = AskPolicy | TellEpoch | Finish


# ---------------------------------------------------------------------------------------------------- the machine


class Stage(Enum):
    """Where a trial is in its epochs (drawn above)."""

    BETWEEN = auto()  # no epoch is running; the policy has been asked about the next one
    TRAINING = auto()  # an epoch is running
    EVALUATED = auto()  # an epoch is running, and its metric is known
    AWAITING = auto()  # an epoch is over; its metric may follow


IN_EPOCH = (Stage.TRAINING, Stage.EVALUATED)


@dataclass(frozen=True, slots=True)
class EpochSoFar:
    """What is known of the epoch that is running, or just over."""

    use: Use = ZERO
    evaluation: Use = ZERO  # the part of `use` besides its steps
    metric: float | None = None
    limits: frozenset[float | None] = frozenset()
    steps: int = 0
    paces: tuple[float, ...] = ()  # cost of a step in each measurement
    was_asked: bool = False  # whether the policy was asked inside it


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The target, cost model and bound of a trial."""

    target_metric: float | None  # None: it runs to max_epochs
    higher_is_better: bool = True
    max_epochs: int
    cost: CostModel | None  # None: MAXPOWER is unknown, and so is every cost
    cost_limit: float | None = None
    batch_size: int | None = None  # samples in a step, over all GPUs; None: unknown
    steps_per_epoch: int | None = None  # if steps can be seen and counted before the first epoch
    found_watts: float | None = None  # the power limit before Zeus changed it
    before: Use = ZERO  # used by this trial before the engine began; charged to it
    earlier: Use = ZERO  # of `before`, what was not training: starts that ran out of memory, profiling
    micro_batch_size: int | None = None  # samples on each GPU at once, if gradients are accumulated
    epochs_before: int = 0  # in a checkpoint from which this start goes on

    @classmethod
    def of(cls, spec: JobSpec, cost: CostModel, cost_limit: float | None, **more: object) -> Terms:
        """The terms of a trial of this job."""
        return cls(
            target_metric=spec.target_metric,
            higher_is_better=spec.higher_is_better_metric,
            max_epochs=spec.max_epochs,
            cost=cost,
            cost_limit=cost_limit,
            **more,  # type: ignore[arg-type]
        )

    def reached(self, metric: float) -> bool:
        """Whether this metric meets the target."""
        target = self.target_metric
        return target is not None and is_reached(target, metric, self.higher_is_better)


@dataclass(frozen=True, slots=True)
class TrialEngine:
    """The state of a trial. `handle` returns the next state and the actions to carry out.

    >>> engine = TrialEngine(Terms(target_metric=0.9, max_epochs=5, cost=CostModel(1.0, 250.0)))
    >>> for event in (Started(), EpochBegan(), Measured(Kind.EPOCH, 1, Use(100.0, 2.0), 250.0), EpochEnded()):
    ...     engine, actions = engine.handle(event)
    >>> engine, (*_, finish) = engine.handle(Evaluated(0.95))
    >>> finish.outcome.ending, finish.outcome.joules, finish.outcome.epochs
    (<Ending.CONVERGED: 'converged'>, 100.0, 1)
    """

    terms: Terms
    known: Knowledge = field(default_factory=Knowledge)
    epochs: int = 0  # finished epochs
    metric: float | None = None
    spent: Use = ZERO  # everything that is charged to this start
    ending: Ending | None = None
    next_epoch_cost: float | None = None
    stretches: Mapping[tuple[Kind, float | None, bool], UsageSegment] = field(default_factory=dict)
    curve: tuple[EpochPoint, ...] = ()
    samples: int | None = None  # in an epoch, if the script reports them
    _stride: int = 1
    _stage: Stage = Stage.BETWEEN
    _epoch: EpochSoFar = EpochSoFar()
    _last_evaluation: Use = ZERO  # of the epoch before
    _limit: float | None = None  # of the last steps or epoch; evaluation may run at another
    _steps_per_epoch: int | None = None

    @classmethod
    def resumed(
        cls, terms: Terms, known: Knowledge, epochs: int, so_far: Outcome | None, lost: Use = ZERO
    ) -> TrialEngine:
        """A trial that goes on, from a checkpoint or after its ranks were lost.

        Args:
            terms: Its terms.
            known: What earlier trials tell.
            epochs: Finished epochs in the checkpoint; 0 if training starts from the beginning.
            so_far: What the trial had used when it last reported. None: it had not begun, so epochs of a checkpoint
                belong to another trial. What the whole training uses is then unknown.
            lost: What was used since that report.
        """
        before = terms.before
        if so_far is None and epochs:
            before = Use(math.nan, before.seconds)
        elif so_far is not None and so_far.seconds and so_far.seconds >= before.seconds:
            # Otherwise nothing was measured yet, or the store missed a start.
            before = Use(math.nan if so_far.joules is None else so_far.joules, so_far.seconds)
        return cls.after(replace(terms, before=before + lost, epochs_before=epochs), known, epochs, so_far)

    @classmethod
    def after(cls, terms: Terms, known: Knowledge, epochs: int, so_far: Outcome | None) -> TrialEngine:
        """A trial in the same process after this many epochs, with the units that it last reported.

        What it used until then is `terms.before`.
        """
        units = {} if so_far is None else {(one.kind, one.limit_watts, one.cold): one for one in so_far.stretches}
        return cls(terms, known, epochs=epochs, stretches=units)

    @property
    def charged(self) -> Use:
        """Everything that is charged to the trial."""
        return self.terms.before + self.spent

    @property
    def steps_per_epoch(self) -> int | None:
        """The steps of the last epoch, or before that the number in the terms."""
        return self._steps_per_epoch or self.terms.steps_per_epoch

    # ------------------------------------------------------------------ events

    def handle(self, event: Event) -> tuple[TrialEngine, tuple[Action, ...]]:  # noqa: PLR0911 (one for each event)
        """The trial after this event, and the actions to carry out. After the end of the trial there are none."""
        if self.ending is not None:
            return self._after_the_end(event), ()
        match event:
            case Started():
                return self._before_the_first()
            case EpochBegan():
                engine, actions = self._judged() if self._stage is Stage.AWAITING else (self, ())
                return replace(engine, _stage=Stage.TRAINING), actions
            case Measured():
                return self._measured(event)
            case EpochEnded():
                return self._epoch_ended()
            case Evaluated(metric):
                return self._metric_reported(metric)
            case SamplesCounted(samples):
                return replace(self, samples=samples), ()
            case PolicyAnswered(go):
                return (self, ()) if go else self._finish(Ending.STOPPED)
            case Ended(ending):
                return self._finish(ending)

    def _after_the_end(self, event: Event) -> TrialEngine:
        """A trial stopped inside an epoch is charged until its loop ends. Nothing else changes."""
        if not (self._epoch.was_asked and self.ending is Ending.STOPPED and isinstance(event, Measured)):
            return self
        return replace(
            self, stretches=self._added(event) if event.count else self.stretches, spent=self.spent + event.use
        )

    def _before_the_first(self) -> tuple[TrialEngine, tuple[Action, ...]]:
        found = first_epoch(self.known, self.terms.steps_per_epoch, self._limit or self.terms.found_watts)
        return (self, ()) if found is None else self._ask(found)

    def _measured(self, event: Measured) -> tuple[TrialEngine, tuple[Action, ...]]:
        kind, count, use = event.kind, event.count, event.use
        stretches = self._added(event) if count else self.stretches
        if kind is Kind.SET_UP:
            return replace(self, stretches=stretches), ()
        is_training = count > 0 and kind is not Kind.EVALUATION
        steps = count if kind is Kind.STEP else 0
        epoch = self._epoch
        epoch = replace(
            epoch,
            use=epoch.use + use,
            evaluation=epoch.evaluation + use if kind is Kind.EVALUATION else epoch.evaluation,
            limits=epoch.limits | {event.limit} if is_training else epoch.limits,
            steps=epoch.steps + steps,
            paces=(*epoch.paces, self._price(use) / steps) if steps else epoch.paces,
        )
        limit = event.limit if is_training else self._limit
        now = replace(self, stretches=stretches, spent=self.spent + use, _epoch=epoch, _limit=limit)
        return now._look_inside() if steps and now._stage in IN_EPOCH else (now, ())

    def _added(self, event: Measured) -> dict[tuple[Kind, float | None, bool], UsageSegment]:
        # What follows the first epoch, up to its metric, is a part of it.
        cold = self.epochs - self.terms.epochs_before == (self._stage is Stage.AWAITING)
        joules = event.use.joules if event.use.is_known else None
        one = UsageSegment.of(
            event.kind, event.limit, cold, event.count, None if joules is None else max(0.0, joules), event.use.seconds
        )
        key, stretches = (event.kind, event.limit, cold), dict(self.stretches)
        had = stretches.pop(key, None)  # the latest comes last
        stretches[key] = one if had is None else had + one
        return stretches

    def _epoch_ended(self) -> tuple[TrialEngine, tuple[Action, ...]]:
        """If the metric is not known yet, an evaluation may follow, which belongs to this epoch."""
        now = replace(self, epochs=self.epochs + 1, _stage=Stage.AWAITING)
        return now._judged() if self._stage is Stage.EVALUATED else (now, ())

    def _closed(self) -> TrialEngine:
        """Add the epoch that has just ended to the curve, and begin with an empty one."""
        number, epoch = self.epochs, self._epoch
        limit = next(iter(epoch.limits)) if len(epoch.limits) == 1 else None
        joules = epoch.use.joules if epoch.use.is_known else None
        point = EpochPoint(number, epoch.metric, joules, epoch.use.seconds, limit)
        curve, stride = (*self.curve, point) if number % self._stride == 0 else self.curve, self._stride
        if len(curve) > POINTS:
            curve, stride = curve[1::2], 2 * stride
        return replace(
            self,
            curve=curve,
            _stride=stride,
            _stage=Stage.BETWEEN,
            _epoch=EpochSoFar(),
            _last_evaluation=epoch.evaluation,
            _steps_per_epoch=epoch.steps or self._steps_per_epoch,
        )

    def _metric_reported(self, metric: float) -> tuple[TrialEngine, tuple[Action, ...]]:
        known, stage = metric if is_number(metric) else None, self._stage
        now = replace(self, metric=known)
        if stage is not Stage.BETWEEN:
            now = replace(now, _epoch=replace(self._epoch, metric=known))
        if stage is Stage.TRAINING:
            now = replace(now, _stage=Stage.EVALUATED)
        if self.terms.reached(metric):
            return now._finish(Ending.CONVERGED)
        return now._judged() if stage is Stage.AWAITING else (now, ())

    # ------------------------------------------------------------------ the next epoch

    def _judged(self) -> tuple[TrialEngine, tuple[Action, ...]]:
        """An epoch is over, with its metric if there is one: ask whether another may follow."""
        now = self._closed()
        if now.epochs >= now.terms.max_epochs:
            return now._finish(Ending.NOT_CONVERGED)
        found = now._next()
        asked, actions = now._ask(found)
        tell = (TellEpoch(found.use),) if found is not None and found.use.is_known else ()
        return asked, (*tell, *actions)

    def _next(self) -> EpochEstimate | None:
        own = self.stretches.values()
        found = next_epoch(self.known, own, self._limit, self.steps_per_epoch, self._last_evaluation)
        return found if found is not None or self.known.epoch is None else EpochEstimate(self.known.epoch, 0.0)

    def _ask(self, found: EpochEstimate | None) -> tuple[TrialEngine, tuple[Action, ...]]:
        # A cold epoch does not tell what the next one costs. If steps can be seen, its evaluation is a part of that.
        part = self._usual_evaluation() if self._steps_per_epoch else ZERO
        use, least = (part, part) if found is None else (found.use, found.least)
        now = replace(self, next_epoch_cost=self._priced(use))
        return now, (AskPolicy(now.report, self._priced(self.charged + least)),)

    def _look_inside(self) -> tuple[TrialEngine, tuple[Action, ...]]:
        """Ask the policy if this epoch will not fit under the bound, even at the pace of its cheapest steps.

        A script evaluates after its steps, also if it is stopped among them: the evaluation to come counts.
        """
        epoch, steps, spent = self._epoch, self.steps_per_epoch or 0, self._price(self.charged)
        if epoch.was_asked or self.terms.cost_limit is None or not math.isfinite(spent):
            return self, ()
        left = self._price((self._usual_evaluation() - epoch.evaluation).most(ZERO))
        # The first steps may be slow, so nothing is extrapolated from them.
        if len(epoch.paces) > 1 and epoch.steps * LOOKS >= steps:
            left += max(0, steps - epoch.steps) * min(epoch.paces)
        if fits(spent + left, self.terms.cost_limit):
            return self, ()
        now = replace(self, next_epoch_cost=self._price(epoch.use) + left, _epoch=replace(epoch, was_asked=True))
        return now, (AskPolicy(now.report, spent + left),)

    def _usual_evaluation(self) -> Use:
        """What the evaluation of an epoch uses: that of the last epoch, or else what is known of others."""
        if self._last_evaluation.seconds:
            return self._last_evaluation
        return evaluation(self.known, self.stretches.values(), self._limit)

    def _price(self, use: Use) -> float:
        return math.nan if self.terms.cost is None else self.terms.cost.of(use)

    def _priced(self, use: Use) -> float:
        """Equation 2; 0 if the energy is unknown, so that unknown energy never stops a trial."""
        price = self._price(use)
        return price if math.isfinite(price) else 0.0

    # ------------------------------------------------------------------ the end

    def _finish(self, ending: Ending) -> tuple[TrialEngine, tuple[Action, ...]]:
        in_the_midst = ending in (Ending.CONVERGED, Ending.NOT_CONVERGED) and self._stage in IN_EPOCH
        now = replace(self, epochs=self.epochs + 1) if in_the_midst else self
        if in_the_midst or self._stage is Stage.AWAITING:
            now = now._closed()
        if ending is Ending.NOT_CONVERGED and not now.epochs:
            ending = Ending.LOST
        following = now.next_epoch_cost if ending is Ending.STOPPED else None
        now = replace(now, ending=ending, next_epoch_cost=following)
        tell: tuple[Action, ...] = ()
        whole = ending in (Ending.CONVERGED, Ending.NOT_CONVERGED)
        alone = now.epochs - now.terms.epochs_before == 1
        if whole and alone and now.spent.is_known and now.spent.joules > 0 < now.spent.seconds:
            tell = (TellEpoch(now.spent),)  # a training of one epoch has no better estimate
        return now, (*tell, Finish(now.outcome(ending)))

    @property
    def so_far(self) -> Outcome:
        """The outcome if the trial is given up now."""
        return self.outcome(Ending.LOST)

    @property
    def report(self) -> Outcome:
        """The outcome if the trial goes on, but nothing more is heard of it.

        As long as nothing was measured, its energy is unknown: it may be lost anywhere in its first epoch.
        """
        found = self.so_far
        return found if found.seconds else replace(found, joules=None)

    def outcome(self, ending: Ending) -> Outcome:
        """The outcome if the trial ends this way now. Unknown energy is None."""
        charged, earlier, following = self.charged, self.terms.earlier, self.next_epoch_cost
        limits = {one.limit_watts for one in self.stretches.values()} - {None, self.terms.found_watts}
        stopped, samples = ending is Ending.STOPPED, self.samples
        if samples is None and self._steps_per_epoch and self.terms.batch_size:
            samples = self._steps_per_epoch * self.terms.batch_size
        return Outcome(
            ending=ending,
            joules=charged.joules if is_number(charged.joules, LEAST if self.epochs else 0) else None,
            seconds=max(1e-9 if self.epochs else 0.0, charged.seconds),  # a virtual clock may not have moved
            epochs=self.epochs,
            metric=self.metric,
            next_epoch_cost=(following if following or not self.epochs else None) if stopped else None,
            stretches=tuple(self.stretches.values()),
            curve=() if ending is Ending.LOST else self.curve,
            found_watts=self.terms.found_watts,
            set_limits=bool(limits) and self.terms.found_watts is not None,
            micro_batch_size=self.terms.micro_batch_size,
            samples=samples,
            earlier_joules=earlier.joules if earlier.is_known else None,
            earlier_seconds=earlier.seconds,
        )
