"""`zeus profile`: enough is measured when every epoch can be told, and an epoch is its steps and its evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from zeus.cost import CostModel, Use
from zeus.job import Kind, UsageSegment
from zeus.profile import LimitSlice, PowerProfile
from zeus.trial.engine import EpochBegan, EpochEnded, Evaluated, Event, Measured, Terms, TrialEngine
from zeus.trial.quick_profile import ENOUGH_LOOKS, epoch_uses, is_enough

STEP = Use(20.0, 0.1)


def engine(*events: Event, steps: int | None = 1000, max_epochs: int = 10) -> TrialEngine:
    cost = CostModel(0.5, 250.0)
    now = TrialEngine(Terms(target_metric=0.9, max_epochs=max_epochs, cost=cost, steps_per_epoch=steps))
    for event in (EpochBegan(), *events):
        now, _ = now.handle(event)
    return now


def stepped(count: int, limit: float = 250.0, looks: int = ENOUGH_LOOKS) -> list[Event]:
    return [Measured(Kind.STEP, count // looks, STEP.times(count // looks), limit) for _ in range(looks)]


def evaluated() -> list[Event]:
    return [Measured(Kind.EVALUATION, 1, Use(300.0, 2.0), 250.0), Evaluated(0.1), EpochEnded(), EpochBegan()]


def enough(now: TrialEngine, *, profiled: bool = True, sets_limits: bool = True) -> bool:
    return is_enough(now, profiled=profiled, sets_limits=sets_limits)


def test_a_profile_is_enough_if_the_steps_of_an_epoch_are_known() -> None:
    assert enough(engine(*stepped(100)))
    assert not enough(engine(*stepped(100)), profiled=False)
    assert not enough(engine(*stepped(100), steps=None))  # an epoch without a length must end first
    assert enough(engine(*stepped(100), *evaluated(), steps=None))


def test_more_than_half_an_epoch_is_finished_with_its_evaluation() -> None:
    assert not enough(engine(*stepped(600)))
    assert enough(engine(*stepped(1000), *evaluated()))
    assert enough(engine(*stepped(600), max_epochs=1))  # after its only epoch the script would go on by itself


def test_without_limits_five_seconds_of_steps_are_enough() -> None:
    assert enough(engine(*stepped(60)), profiled=False, sets_limits=False)
    assert not enough(engine(*stepped(40)), profiled=False, sets_limits=False)
    assert not enough(engine(*stepped(60, looks=2)), profiled=False, sets_limits=False)
    assert not enough(engine(steps=1000), profiled=False, sets_limits=False)


def test_a_loop_that_shows_no_steps_needs_a_steady_epoch() -> None:
    epoch = [Measured(Kind.EPOCH, 1, Use(2000.0, 10.0), 250.0), EpochEnded(), Evaluated(0.1), EpochBegan()]
    assert not enough(engine(*epoch, steps=None), profiled=False, sets_limits=False)
    assert enough(engine(*epoch, *epoch, steps=None), profiled=False, sets_limits=False)
    assert not enough(engine(*epoch, *epoch, steps=None), profiled=False, sets_limits=True)


def own(*rows: tuple[Kind, float, bool, int, float]) -> Iterable[UsageSegment]:
    return [UsageSegment.of(kind, limit, cold, n, n * joules, n * 1.0) for kind, limit, cold, n, joules in rows]


def test_an_epoch_is_its_steps_and_an_evaluation() -> None:
    profile = PowerProfile.of([LimitSlice(250, 10, 1.0, 200, 0.02, 4.0), LimitSlice(150, 10, 1.2, 150, 0.02, 4.0)])
    alone = epoch_uses((), profile, 100)
    assert [(one.limit_watts, one.use.joules, one.use.seconds) for one in alone.at] == [
        (250, 2000, 10),
        (150, 1500, 12),
    ]
    assert [(one.error.joules, one.error.seconds) for one in alone.at] == [(40.0, 0.2)] * 2
    assert (alone.steps, alone.has_evaluation) == (100, False)
    both = epoch_uses(own((Kind.EVALUATION, 250.0, True, 1, 100.0)), profile, 100)
    assert [one.use.joules for one in both.at] == [2100, 1575] and both.has_evaluation  # as steps: 3/4 of the energy
    assert [one.use.joules for one in epoch_uses(own((Kind.EVALUATION, 99.0, True, 1, 100.0)), profile, 100).at] == [
        2100,
        1600,
    ]  # nothing tells how it changes with the limit
    assert both.at[0].error.joules > 40.0
    assert both.best(CostModel(1.0, 250.0)).limit_watts == 150
    assert both.best(CostModel(0.0, 250.0)).limit_watts == 250


def test_what_a_training_measured_stands_in_for_a_profile() -> None:
    steps = own((Kind.STEP, 250.0, True, 50, 20.0))
    assert [one.use.joules for one in epoch_uses(steps, None, 100).at] == [2000]
    assert epoch_uses(steps, None, None).at == ()  # nobody knows how long an epoch is
    assert [one.use.joules for one in epoch_uses(steps, None, None, epochs=2).at] == [500]


def test_a_steady_epoch_counts_and_a_cold_one_only_in_its_absence() -> None:
    (one,) = epoch_uses(own((Kind.EPOCH, 250.0, True, 1, 900.0), (Kind.EPOCH, 250.0, False, 1, 500.0)), None, None).at
    assert one.use.joules == 500.0 and math.isnan(one.error.joules)
    (one,) = epoch_uses(own((Kind.EPOCH, 250.0, True, 1, 900.0)), None, None).at
    assert one.use.joules == 900.0


def test_a_limit_that_cannot_be_read_is_unknown() -> None:
    (one,) = epoch_uses([UsageSegment.of(Kind.STEP, None, True, 50, 1000.0, 5.0)], None, 10).at
    assert (one.limit_watts, one.use.joules) == (None, pytest.approx(200.0))
