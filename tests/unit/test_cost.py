"""Equations 2 and 3: what a run is charged."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import CostModel
from zeus.errors import InputError

etas = st.floats(0, 1)
amounts = st.floats(0, 1e9)
max_watts = st.floats(1, 1e5)
durations = st.floats(1e-3, 1e6)


@given(etas, max_watts, amounts, durations)
def test_cost_is_eta_times_energy_plus_the_rest_times_maxpower_times_time(
    eta: float, maximum: float, joules: float, seconds: float
) -> None:
    expected = eta * joules + (1 - eta) * maximum * seconds
    assert CostModel(eta, maximum).cost(joules, seconds) == pytest.approx(expected)


@given(etas, max_watts, st.floats(0, 1e5), durations)
def test_the_rate_over_time_is_the_cost(eta: float, maximum: float, watts: float, seconds: float) -> None:
    model = CostModel(eta, maximum)
    assert model.rate(watts) * seconds == pytest.approx(model.cost(watts * seconds, seconds))


@given(max_watts, amounts, durations)
def test_at_eta_1_only_energy_counts_and_at_0_only_time(maximum: float, joules: float, seconds: float) -> None:
    assert CostModel(1, maximum).cost(joules, seconds) == pytest.approx(joules)
    assert CostModel(0, maximum).cost(joules, seconds) == pytest.approx(maximum * seconds)


@given(etas, max_watts, amounts, durations, st.integers(1, 64))
def test_eta_means_the_same_on_any_number_of_gpus(
    eta: float, maximum: float, joules: float, seconds: float, gpus: int
) -> None:
    one, many = CostModel(eta, maximum), CostModel(eta, gpus * maximum)
    assert many.cost(gpus * joules, seconds) == pytest.approx(gpus * one.cost(joules, seconds))


@given(etas, max_watts, amounts, amounts, durations, durations)
def test_costs_of_parts_add_up(
    eta: float, maximum: float, one: float, other: float, first: float, second: float
) -> None:
    model = CostModel(eta, maximum)
    assert model.cost(one, first) + model.cost(other, second) == pytest.approx(model.cost(one + other, first + second))


@pytest.mark.parametrize("eta", [-0.01, 1.01, math.nan, math.inf])
def test_an_eta_outside_0_to_1_is_refused(eta: float) -> None:
    with pytest.raises(InputError, match="eta"):
        CostModel(eta, 250)


@pytest.mark.parametrize("maximum", [0, -250, math.nan, math.inf])
def test_a_maxpower_that_is_none_is_refused(maximum: float) -> None:
    with pytest.raises(InputError, match="max_watts"):
        CostModel(0.5, maximum)
