"""`zeus profile`: when enough of a training is measured, and what an epoch uses at each power limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zeus.cost import CostModel, Use
from zeus.job import Kind, UsageSegment
from zeus.ledger.units import Unit, Units
from zeus.profile import LimitSlice, PowerProfile
from zeus.trial.engine import TrialEngine
from zeus.trial.knowledge import UNREAD, readable

UNKNOWN = Use(math.nan, math.nan)  # the scatter of one epoch
ENOUGH_SECONDS = 5.0  # of steps, if no limits are profiled: the most that the profiler spends at one limit
ENOUGH_LOOKS = 4  # measurements of them, so that their scatter is known


def is_enough(engine: TrialEngine, *, profiled: bool, sets_limits: bool) -> bool:
    """Whether a training has shown what its epochs use, so that it may end.

    Args:
        engine: The trial so far.
        profiled: Whether the profile of power limits is complete.
        sets_limits: Whether this process has set a power limit. If not, there is only one limit to measure.

    If more than half of the first epoch is over, it is finished, because its evaluation belongs to its cost.
    """
    own = list(engine.stretches.values())
    steps = [one for one in own if one.kind is Kind.STEP]
    if any(one.kind is Kind.EPOCH and not one.cold for one in own):
        return profiled or not sets_limits
    if not profiled and (sets_limits or not _is_long(steps)):
        return False
    whole = engine.steps_per_epoch
    if whole is None or not steps:  # a data set without a length: its first epoch tells
        return False
    done = sum(one.count for one in steps)
    return engine.epochs > 0 or 2 * done < whole or engine.terms.max_epochs == 1


def _is_long(steps: Iterable[UsageSegment]) -> bool:
    known = [one for one in steps if one.joules is not None]
    return any(one.seconds >= ENOUGH_SECONDS and one.measurements >= ENOUGH_LOOKS for one in known)


@dataclass(frozen=True, slots=True)
class EpochUse:
    """What an epoch uses at one power limit."""

    limit_watts: float | None  # None: it cannot be read
    use: Use
    error: Use  # standard error; NaN if unknown

    def cost(self, model: CostModel) -> float:
        """EpochCost of Equation 5."""
        return model.of(self.use)


@dataclass(frozen=True, slots=True)
class EpochUses:
    """What an epoch of one batch size uses at each limit measured, highest first."""

    at: tuple[EpochUse, ...] = ()
    steps: int | None = None  # in an epoch; None: steps were not seen
    has_evaluation: bool = False

    def best(self, model: CostModel) -> EpochUse:
        """Equation 7. Of equal ones the highest limit wins, as it is faster."""
        return min(self.at, key=lambda one: (one.cost(model), -(one.limit_watts or 0.0)))


def epoch_uses(
    stretches: Iterable[UsageSegment], profile: PowerProfile | None, steps: int | None, epochs: int = 0
) -> EpochUses:
    """What an epoch uses, from the steps of a power profile, or else from what a training measured.

    Args:
        stretches: What the training measured.
        profile: Its power profile, if it is complete.
        steps: Steps in an epoch, if they are known.
        epochs: How many epochs the training completed.

    >>> profile = PowerProfile.of([LimitSlice(250, 10, 1.0, 200), LimitSlice(150, 10, 1.2, 150)])
    >>> [(one.limit_watts, one.use.joules) for one in epoch_uses([], profile, 100).at]
    [(250, 2000.0), (150, 1500.0)]
    """
    own = readable(stretches)
    book = Units.of([own])
    if epochs_seen := _units(book, Kind.EPOCH):  # steps were not seen; such an epoch includes its evaluation
        whole = (
            EpochUse(_watts(limit), one.use, one.error if one.count > 1 else UNKNOWN)
            for limit, one in epochs_seen.items()
        )
        return EpochUses(tuple(whole), None, has_evaluation=True)
    counted = sum(one.count for one in own if one.kind is Kind.STEP)
    if steps is None and epochs and counted:
        steps = math.ceil(counted / epochs)
    if not steps:
        return EpochUses()
    if profile is not None and profile.slices:
        each = {one.limit_watts: _step(one) for one in profile.slices}
    else:
        each = _units(book, Kind.STEP)
    between = _units(book, Kind.EVALUATION)
    beside = {limit: _evaluation(limit, each, between) for limit in sorted(each, reverse=True)}
    uses = tuple(_sum(limit, each[limit], steps, one) for limit, one in beside.items())
    return EpochUses(uses, steps, has_evaluation=bool(uses) and None not in beside.values())


def _step(one: LimitSlice) -> Unit:
    """A step of a power profile."""
    error = Use(*(math.nan if value is None else value for value in (one.joules_error, one.seconds_error)))
    return Unit(Use(one.joules, one.seconds).times(1 / one.steps), error.times(1 / one.steps), one.steps)


def _units(book: Units, kind: Kind) -> dict[float, Unit]:
    """A steady unit at each limit, or else a cold one."""
    found = {limit: book.unit(kind, limit) or book.unit(kind, limit, cold=True) for limit in book.limits(kind)}
    return {limit: unit for limit, unit in found.items() if unit is not None}


def _evaluation(limit: float, each: Mapping[float, Unit], seen: Mapping[float, Unit]) -> Unit | None:
    """An evaluation at this limit. One that ran at another limit changes with the limit as the steps do."""
    if limit in seen:
        return seen[limit]
    for other, unit in seen.items():
        if other in each:
            by = each[limit].use / each[other].use
            return Unit(unit.use * by, unit.error * by, unit.count)
    return next(iter(seen.values()), None)


def _sum(limit: float, step: Unit, steps: int, beside: Unit | None) -> EpochUse:
    use, error = step.use.times(steps), step.error.times(steps)
    if beside is not None:
        use, error = use + beside.use, error.hypot(beside.error)
    return EpochUse(_watts(limit), use, error)


def _watts(limit: float) -> float | None:
    return None if limit == UNREAD else limit
