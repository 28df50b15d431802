"""What a unit uses at each limit: cold and steady ones apart, and what is not known is not told."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import Use
from zeus.job import Ending, Kind, Outcome, UsageSegment
from zeus.ledger.moving import Moved, move
from zeus.ledger.units import Units

uses = st.floats(1.0, 1e4)


def row(limit: float, joules: float, seconds: float = 1.0, *, cold: bool = False, count: int = 1) -> UsageSegment:
    return UsageSegment.of(Kind.EPOCH, limit, cold, count, count * joules, count * seconds)


@given(st.lists(st.floats(0.3, 3.0), min_size=1, max_size=8), st.integers(1, 5))
def test_a_ratio_does_not_mind_how_much_data_each_trial_had(levels: list[float], many: int) -> None:
    trials = [
        [
            row(250.0, 100.0 * level, level, count=1 + n % 2 * many),
            row(150.0, 80.0 * level, level, count=1 + (n + 1) % 2 * many),
        ]
        for n, level in enumerate(levels)
    ]
    ratio = Units.of(trials).ratio(Kind.EPOCH, 250.0, 150.0)
    assert ratio is not None
    assert math.isclose(ratio.factor.joules, 1.25) and math.isclose(ratio.factor.seconds, 1.0)


@given(uses, uses)
def test_trials_of_other_data_are_compared_as_if_they_had_those_of_today(high: float, low: float) -> None:
    trials = [[row(250.0, high)], [row(150.0, low)]]
    ratio = Units.of(trials, [3.0, 1.0]).ratio(Kind.EPOCH, 250.0, 150.0)
    assert ratio is not None
    assert math.isclose(ratio.factor.joules, 3 * high / low) and math.isclose(ratio.factor.seconds, 3.0)


@given(uses, uses, uses)
def test_steady_units_are_compared_before_cold_ones(high: float, low: float, warm_up: float) -> None:
    trials = [[row(250.0, high + warm_up, cold=True), row(150.0, low + warm_up, cold=True)], [row(250.0, high)]]
    cold = Units.of(trials).ratio(Kind.EPOCH, 250.0, 150.0)
    assert cold is not None and cold.cold
    assert math.isclose(cold.factor.joules, (high + warm_up) / (low + warm_up))
    steady = Units.of([*trials, [row(150.0, low)]]).ratio(Kind.EPOCH, 250.0, 150.0)
    assert steady is not None and not steady.cold
    assert math.isclose(steady.factor.joules, high / low)


@given(uses, uses, st.floats(1.06, 100.0))
def test_a_cold_unit_is_never_compared_with_a_steady_one(high: float, low: float, factor: float) -> None:
    book = Units.of([[row(250.0, high * factor, factor, cold=True), row(150.0, low)]])
    assert book.ratio(Kind.EPOCH, 250.0, 150.0) is None
    apart = Units.of([[row(250.0, high * factor, factor, cold=True), row(250.0, high)], [row(150.0, low, cold=True)]])
    seen = apart.ratio(Kind.EPOCH, 250.0, 150.0)
    assert seen is None or seen.cold
    assert not apart.is_pooled(Kind.EPOCH)


def test_cold_units_that_agree_with_steady_ones_count_with_them_and_the_difference_is_doubted() -> None:
    book = Units.of([[row(250.0, 102.0, cold=True), row(150.0, 82.0, cold=True), row(150.0, 80.0)]])
    ratio, unit = book.ratio(Kind.EPOCH, 250.0, 150.0), book.unit(Kind.EPOCH, 150.0)
    assert book.is_pooled(Kind.EPOCH)
    assert ratio is not None and math.isclose(ratio.factor.joules, 102 / 81)
    assert ratio.error.joules > ratio.factor.joules * 0.025
    assert unit is not None and (unit.use.joules, unit.count) == (81.0, 2)


def test_a_first_stretch_that_makes_the_higher_limit_look_slower_is_warm_up() -> None:
    rows = [row(250.0, 900.0, 9.0, cold=True), row(150.0, 80.0, 1.1, cold=True)]
    assert Units.of([rows]).ratio(Kind.EPOCH, 250.0, 150.0) is None
    assert Units.of([rows]).ratio(Kind.EPOCH, 150.0, 250.0) is None
    rows[0] = row(250.0, 100.0, 1.0, cold=True)
    assert Units.of([rows]).ratio(Kind.EPOCH, 250.0, 150.0) is not None


def test_only_the_newest_trials_say_what_a_unit_uses() -> None:
    unit = Units.of([[row(150.0, 1000.0)], *([row(150.0, 80.0)] for _ in range(5))]).unit(Kind.EPOCH, 150.0)
    assert unit is not None and (unit.use.joules, unit.count) == (80.0, 5)


@pytest.mark.parametrize("limit", [None, 250.0])
def test_what_is_not_known_is_not_told(limit: float | None) -> None:
    silent = UsageSegment.of(Kind.EPOCH, limit, False, 1, None if limit else 5.0, 1.0)
    book = Units.of([[silent, row(150.0, 80.0)]])
    assert book.ratio(Kind.EPOCH, 250.0, 150.0) is None
    assert book.unit(Kind.EPOCH, 250.0) is None
    assert book.limits(Kind.EPOCH) == (150.0,)


@pytest.mark.parametrize("together", [True, False])
def test_errors_of_ratios_cover_the_truth_95_times_in_100(together: bool) -> None:
    """Whether the units of a limit ran in one trial or each in its own."""
    rng, hits = random.Random(3), 0
    for _ in range(400):
        noise, count = rng.choice([0.01, 0.05]), rng.randint(3, 20)

        def some(limit: float, joules: float, noise: float = noise, count: int = count) -> list[UsageSegment]:
            return [row(limit, joules * max(0.1, 1 + noise * rng.gauss(0, 1))) for _ in range(count)]

        rows = [*some(250.0, 100.0), *some(150.0, 80.0)]
        ratio = Units.of([rows] if together else [[one] for one in rows]).ratio(Kind.EPOCH, 250.0, 150.0)
        assert ratio is not None
        hits += abs(ratio.factor.joules - 1.25) <= 2 * ratio.error.joules
    assert hits >= 0.95 * 400


# ---------------------------------------------------------------------- a run at another limit


def ran(rows: list[UsageSegment], beside: Use | None = None) -> Outcome:
    """A run of these stretches; `beside` is what it used besides."""
    more = beside or Use()
    joules, seconds = (
        more.joules + sum(one.joules or 0.0 for one in rows),
        more.seconds + sum(one.seconds for one in rows),
    )
    epochs = max(1, sum(one.count for one in rows if one.kind is Kind.EPOCH))
    return Outcome(ending=Ending.CONVERGED, epochs=epochs, stretches=tuple(rows), joules=joules, seconds=seconds)


def moved(run: Outcome, limit: float = 250.0, others: Sequence[Outcome] = ()) -> Moved | None:
    return move(run, limit, Units.of([one.stretches for one in (*others, run)]))


def test_a_run_at_the_limit_throughout_is_measured() -> None:
    run = ran([row(250.0, 500.0, cold=True), row(250.0, 100.0, count=9)])
    assert moved(run) == Moved(Use(1400.0, 10.0), Use(), measured=True)


def test_a_long_wait_before_the_first_unit_is_not_moved() -> None:
    """As while data load: it is no unit, it may be most of the run, and the GPU is idle."""
    rows = [row(250.0, 100.0), row(150.0, 80.0, 1.1, count=9)]
    waited = ran(rows, Use(100.0, 50.0))
    found = moved(waited)
    assert found is not None
    assert abs(found.use.joules - 1100.0) <= 2 * found.error.joules < 120.0
    assert moved(ran([row(250.0, 100.0, count=10)], Use(100.0, 50.0))) == Moved(Use(1100.0, 60.0), Use(), measured=True)


@given(uses, uses, st.floats(0.1, 100.0))
def test_warm_up_is_not_moved(high: float, low: float, share: float) -> None:
    """Steady units are known at both limits: the first epoch counts as one of them, and its warm-up stays."""
    warm_up = low * share
    rows = [row(250.0, high), row(150.0, low + warm_up, cold=True), row(150.0, low, count=8)]
    found = moved(ran(rows))
    assert found is not None and not found.measured
    assert math.isclose(found.use.joules, 10 * high + warm_up, rel_tol=1e-6)


@given(uses, uses, st.floats(1.0, 1.3))
def test_trainings_of_one_epoch_compare_cold_with_cold(high: float, low: float, slower: float) -> None:
    runs = [ran([row(250.0, high, cold=True)]), ran([row(150.0, low, slower, cold=True)])]
    found = moved(runs[1], others=runs[:1])
    assert found is not None
    assert math.isclose(found.use.joules, high, rel_tol=1e-6) and math.isclose(found.use.seconds, 1.0, rel_tol=1e-6)


def test_cold_and_steady_units_say_nothing_about_each_other() -> None:
    """A first epoch at one limit, and all others at another: nobody knows what a steady one would use there."""
    assert moved(ran([row(250.0, 900.0, 5.0, cold=True), row(150.0, 80.0, count=9)])) is None


@given(st.floats(1.1, 5.0), st.booleans())
def test_steady_units_that_only_cold_ones_can_move_are_doubted(factor: float, adds: bool) -> None:
    """Steps that went through the limits in the first epoch alone, whose warm-up adds to each step or multiplies it."""
    high, low = Use(1.0, 1.0), Use(0.8, 1.2)

    def cold(unit: Use) -> Use:
        return unit + Use(factor - 1, factor - 1) if adds else unit.times(factor)

    def rows(limit: float, use: Use, is_cold: bool, count: int) -> UsageSegment:
        return UsageSegment.of(Kind.STEP, limit, is_cold, count, use.joules * count, use.seconds * count)

    found = moved(
        ran([rows(250.0, cold(high), True, 20), rows(150.0, cold(low), True, 80), rows(150.0, low, False, 900)])
    )
    truth = cold(high).times(100) + high.times(900)
    assert found is not None
    assert abs(found.use.joules - truth.joules) <= 2 * found.error.joules
    assert abs(found.use.seconds - truth.seconds) <= 2 * found.error.seconds


def test_evaluation_that_never_ran_at_the_limit_is_half_moved_and_doubted_as_much() -> None:
    evaluation = UsageSegment.of(Kind.EVALUATION, 150.0, False, 6, 300.0, 3.0)
    run = ran([row(250.0, 100.0, count=10), row(150.0, 80.0, count=10), evaluation])
    found = moved(run)
    half = 0.5 * 300.0 * (100 / 80 - 1)
    assert found is not None and math.isclose(found.use.joules, 2000.0 + 300.0 + half)
    assert math.hypot(half, 0.0) <= found.error.joules <= math.hypot(half, 0.05 * 1000.0)


@pytest.mark.parametrize(("unknown", "known"), [(1, True), (10, False)])
def test_a_few_units_at_unknown_limits_stay_as_they_were_and_many_leave_nothing_to_say(
    unknown: int, known: bool
) -> None:
    blurred = UsageSegment.of(Kind.EPOCH, None, False, unknown, 80.0 * unknown, 1.0 * unknown)
    found = moved(ran([row(250.0, 100.0, count=2), row(150.0, 80.0, count=18 - unknown), blurred]))
    assert (found is not None) == known
    if found is not None:
        assert 1960.0 < found.use.joules < 2000.0


def test_limits_are_compared_through_others() -> None:
    """No run had both 250 and 100 W, but one had 250 and 150 W and one had 150 and 100 W, on twice the data."""
    trials = [[row(250.0, 100.0), row(150.0, 80.0)], [row(150.0, 160.0), row(100.0, 140.0)]]
    ratio = Units.of(trials).ratio(Kind.EPOCH, 250.0, 100.0)
    assert ratio is not None and math.isclose(ratio.factor.joules, 100 / 80 * 160 / 140)


def test_runs_that_share_no_limit_are_compared_with_the_error_that_runs_have() -> None:
    apart = Units.of([[row(250.0, 100.0, count=50)], [row(150.0, 80.0, count=50)]])
    within = Units.of([[row(250.0, 100.0, count=50), row(150.0, 80.0, count=50)]])
    far, near = (one.ratio(Kind.EPOCH, 250.0, 150.0) for one in (apart, within))
    assert far is not None and near is not None
    assert math.isclose(far.factor.joules, 1.25, rel_tol=1e-6)
    assert far.error.joules > 0.08 > 0.03 > near.error.joules
