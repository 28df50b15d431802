"""Which limit each selector keeps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.optimizer.power_limit.selector import (
    Energy,
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Time,
    ZeusCost,
)

rows = st.lists(
    st.builds(
        PowerLimitMeasurement,
        power_limit=st.integers(100, 700),
        energy=st.floats(1, 1e6),
        time=st.floats(1e-3, 1e4),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda m: m.power_limit,
)
etas = st.floats(0, 1)
CURVE = [
    PowerLimitMeasurement(250, 250.0, 1.00),
    PowerLimitMeasurement(200, 206.0, 1.03),
    PowerLimitMeasurement(150, 174.0, 1.16),
    PowerLimitMeasurement(100, 180.0, 1.80),
]


def chosen(selector: OptimumSelector, measurements: list[PowerLimitMeasurement]) -> PowerLimitMeasurement:
    limit = selector.select(measurements)
    return next(m for m in measurements if m.power_limit == limit)


def test_each_selector_keeps_its_own_limit_of_a_typical_curve() -> None:
    assert Time().select(CURVE) == 250
    assert Energy().select(CURVE) == 150
    assert ZeusCost(0.5).select(CURVE) == 200
    assert MaxSlowdownConstraint(1.05).select(CURVE) == 200
    assert MaxSlowdownConstraint(1.2).select(CURVE) == 150
    assert MaxSlowdownConstraint(2.0).select(CURVE) == 100


@given(rows)
def test_energy_and_time_pick_their_least(measurements: list[PowerLimitMeasurement]) -> None:
    assert chosen(Energy(), measurements).energy == min(m.energy for m in measurements)
    assert chosen(Time(), measurements).time == min(m.time for m in measurements)


@given(rows)
def test_zeus_cost_at_eta_1_is_energy_and_at_0_is_time(measurements: list[PowerLimitMeasurement]) -> None:
    assert ZeusCost(1).select(measurements) == Energy().select(measurements)
    assert chosen(ZeusCost(0), measurements).time == pytest.approx(min(m.time for m in measurements))


@given(rows, etas)
def test_zeus_cost_picks_the_least_cost_of_equation_7(measurements: list[PowerLimitMeasurement], eta: float) -> None:
    maximum = max(m.power_limit for m in measurements)
    costs = {m.power_limit: eta * m.energy + (1 - eta) * maximum * m.time for m in measurements}
    assert costs[ZeusCost(eta).select(measurements)] == pytest.approx(min(costs.values()))


@given(rows, etas, st.sampled_from([2, 4, 8, 64]))
def test_eta_means_the_same_at_any_number_of_gpus(
    measurements: list[PowerLimitMeasurement], eta: float, gpus: int
) -> None:
    summed = [PowerLimitMeasurement(m.power_limit, gpus * m.energy, m.time) for m in measurements]
    assert ZeusCost(eta, world_size=gpus).select(summed) == ZeusCost(eta).select(measurements)


@given(rows, etas)
def test_maxpower_given_goes_before_maxpower_seen(measurements: list[PowerLimitMeasurement], eta: float) -> None:
    selector = ZeusCost(eta, max_watts=1000.0)
    selector.select(measurements)
    assert selector.max_watts == 1000.0


def test_maxpower_of_the_highest_limit_is_that_of_all_gpus_and_leaves_the_users_selector_alone() -> None:
    selector = ZeusCost(0.5, world_size=4)
    assert selector.with_highest(250.0).score(joules=0, seconds=1) == 0.5 * 1000
    assert selector.max_watts is None


def test_a_score_without_maxpower_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="max_watts"):
        ZeusCost(0.5).score(1.0, 1.0)


@given(rows, st.floats(1, 3))
def test_the_constraint_is_kept_and_no_lower_limit_keeps_it(
    measurements: list[PowerLimitMeasurement], factor: float
) -> None:
    bound = factor * max(measurements, key=lambda m: m.power_limit).time
    kept = chosen(MaxSlowdownConstraint(factor), measurements)
    assert kept.time <= bound
    assert all(m.time > bound for m in measurements if m.power_limit < kept.power_limit)


def test_of_equal_scores_the_highest_limit_is_kept() -> None:
    equal = [PowerLimitMeasurement(w, 100.0, 1.0) for w in (100, 200, 150)]
    assert [s.select(equal) for s in (Energy(), Time(), ZeusCost(0.5))] == [200, 200, 200]


@pytest.mark.parametrize("eta", [-0.1, 1.1, math.nan])
def test_an_eta_outside_0_to_1_is_a_value_error(eta: float) -> None:
    with pytest.raises(ValueError, match="eta"):
        ZeusCost(eta)


@pytest.mark.parametrize("size", [0, -1, True])
def test_a_world_size_below_1_is_a_value_error(size: int) -> None:
    with pytest.raises(ValueError, match="world_size"):
        ZeusCost(0.5, world_size=size)


@pytest.mark.parametrize("factor", [0.99, 0, -1, math.nan])
def test_a_slowdown_factor_below_1_is_a_value_error(factor: float) -> None:
    with pytest.raises(ValueError, match="factor"):
        MaxSlowdownConstraint(factor)


@pytest.mark.parametrize("selector", [Energy(), Time(), ZeusCost(0.5), MaxSlowdownConstraint(1.1)])
def test_from_nothing_nothing_can_be_selected(selector: OptimumSelector) -> None:
    with pytest.raises(InputError, match="no measurement"):
        selector.select([])
