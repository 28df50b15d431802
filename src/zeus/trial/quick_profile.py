"""`zeus profile`: when enough of a training is measured, and what an epoch uses at each power limit. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zeus.cost import CostModel
from zeus.job import Kind, Stretch
from zeus.job.units import Unit, Units
from zeus.profile import LimitSlice, PowerProfile
from zeus.trial.engine import TrialEngine
from zeus.trial.knowledge import UNREAD, readable

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


def _is_long(steps: Iterable[Stretch]) -> bool:
    known = [one for one in steps if one.joules is not None]
    return any(one.seconds >= ENOUGH_SECONDS and one.looks >= ENOUGH_LOOKS for one in known)


@dataclass(frozen=True, slots=True)
class EpochUse:
    """What an epoch uses at one power limit, with standard errors. An unknown error is None."""

    limit_watts: float | None  # None: it cannot be read
    joules: float
    seconds: float
    joules_error: float | None
    seconds_error: float | None

    def cost(self, model: CostModel) -> float:
        """EpochCost of Equation 5."""
        return model.cost(self.joules, self.seconds)


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
    stretches: Iterable[Stretch], profile: PowerProfile | None, steps: int | None, epochs: int = 0
) -> EpochUses:
    """What an epoch uses, from the steps of a power profile, or else from what a training measured.

    Args:
        stretches: What the training measured.
        profile: Its power profile, if it is complete.
        steps: Steps in an epoch, if they are known.
        epochs: How many epochs the training completed.

    >>> profile = PowerProfile.of([LimitSlice(250, 10, 1.0, 200), LimitSlice(150, 10, 1.2, 150)])
    >>> [(one.limit_watts, one.joules) for one in epoch_uses([], profile, 100).at]
    [(250, 2000.0), (150, 1500.0)]
    """
    own = readable(stretches)
    book = Units.of([own])
    whole = tuple(_epoch(limit, unit) for limit in book.limits(Kind.EPOCH) if (unit := _unit(book, Kind.EPOCH, limit)))
    if whole:  # steps were not seen; such an epoch includes its evaluation
        return EpochUses(whole, None, has_evaluation=True)
    counted = sum(one.count for one in own if one.kind is Kind.STEP)
    if steps is None and epochs and counted:
        steps = math.ceil(counted / epochs)
    if not steps:
        return EpochUses()
    if profile is not None and profile.slices:
        each: dict[float, _Each | Unit] = {one.limit_watts: _step(one) for one in profile.slices}
    else:
        each = {limit: unit for limit in book.limits(Kind.STEP) if (unit := _unit(book, Kind.STEP, limit)) is not None}
    between = {limit: unit for limit in book.limits(Kind.EVALUATION) if (unit := _unit(book, Kind.EVALUATION, limit))}
    beside = {limit: _evaluation(limit, each, between) for limit in sorted(each, reverse=True)}
    uses = tuple(_sum(limit, each[limit], steps, one) for limit, one in beside.items())
    return EpochUses(uses, steps, has_evaluation=bool(uses) and None not in beside.values())


@dataclass(frozen=True, slots=True)
class _Each:
    """A step of a power profile, whose errors may be unknown."""

    joules: float
    seconds: float
    joules_error: float | None
    seconds_error: float | None


def _step(one: LimitSlice) -> _Each:
    errors = (None if error is None else error / one.steps for error in (one.joules_error, one.seconds_error))
    return _Each(one.joules / one.steps, one.seconds / one.steps, *errors)


def _unit(book: Units, kind: Kind, limit: float) -> Unit | None:
    """A steady unit, or else a cold one."""
    return book.unit(kind, limit) or book.unit(kind, limit, cold=True)


def _epoch(limit: float, unit: Unit) -> EpochUse:
    """A whole epoch. The scatter of one epoch is not known."""
    once = unit.count == 1
    errors = (None, None) if once else (unit.joules_error, unit.seconds_error)
    return EpochUse(_watts(limit), unit.joules, unit.seconds, *errors)


def _evaluation(limit: float, each: Mapping[float, _Each | Unit], seen: Mapping[float, Unit]) -> Unit | None:
    """An evaluation at this limit. One that ran at another limit changes with the limit as the steps do."""
    if limit in seen:
        return seen[limit]
    for other, unit in seen.items():
        if other in each:
            joules, seconds = each[limit].joules / each[other].joules, each[limit].seconds / each[other].seconds
            return Unit(
                unit.joules * joules,
                unit.seconds * seconds,
                unit.joules_error * joules,
                unit.seconds_error * seconds,
                unit.count,
            )
    return next(iter(seen.values()), None)


def _sum(limit: float, step: _Each | Unit, steps: int, beside: Unit | None) -> EpochUse:
    joules, seconds = step.joules * steps, step.seconds * steps
    errors = [None if error is None else error * steps for error in (step.joules_error, step.seconds_error)]
    if beside is not None:
        joules, seconds = joules + beside.joules, seconds + beside.seconds
        more = beside.joules_error, beside.seconds_error
        errors = [None if error is None else math.hypot(error, its) for error, its in zip(errors, more, strict=True)]
    return EpochUse(_watts(limit), joules, seconds, errors[0], errors[1])


def _watts(limit: float) -> float | None:
    return None if limit == UNREAD else limit
