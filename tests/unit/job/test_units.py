"""What a unit uses at each limit: cold and steady ones apart, and what is not known is not told."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import Use
from zeus.job import Kind, Stretch
from zeus.job.units import Units

uses = st.floats(1.0, 1e4)


def row(limit: float, joules: float, seconds: float = 1.0, *, cold: bool = False, count: int = 1) -> Stretch:
    return Stretch.of(Kind.EPOCH, limit, cold, count, count * joules, count * seconds)


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
    ratio = Units.of(trials, [Use(3.0, 2.0), Use(1.0, 1.0)]).ratio(Kind.EPOCH, 250.0, 150.0)
    assert ratio is not None
    assert math.isclose(ratio.factor.joules, 3 * high / low) and math.isclose(ratio.factor.seconds, 2.0)


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
    silent = Stretch.of(Kind.EPOCH, limit, False, 1, None if limit else 5.0, 1.0)
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

        def some(limit: float, joules: float, noise: float = noise, count: int = count) -> list[Stretch]:
            return [row(limit, joules * max(0.1, 1 + noise * rng.gauss(0, 1))) for _ in range(count)]

        rows = [*some(250.0, 100.0), *some(150.0, 80.0)]
        ratio = Units.of([rows] if together else [[one] for one in rows]).ratio(Kind.EPOCH, 250.0, 150.0)
        assert ratio is not None
        hits += abs(ratio.factor.joules - 1.25) <= 2 * ratio.error.joules
    assert hits >= 0.95 * 400
