"""The bound on a trial's cost, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.tuning.cost_bound import CostBound

V100 = {"zeus/eta": 0.5, "zeus/gpus": "1 x V100"}


def cost(joules: float, **others: object) -> dict[str, object]:
    return {"zeus/cost": joules, **V100, **{f"zeus/{name}": value for name, value in others.items()}}


def test_a_trial_may_cost_beta_times_the_cheapest_completed_one_and_no_more() -> None:
    bound, completed = CostBound(beta=2), [cost(300.0), cost(100.0), cost(250.0)]
    assert not bound.is_exceeded(cost(199.9), completed)
    assert not bound.is_exceeded(cost(200.0), completed)
    assert bound.is_exceeded(cost(200.1), completed)


def test_the_first_trial_has_no_bound() -> None:
    assert not CostBound().is_exceeded(cost(1e12), [])


def test_an_unknown_cost_neither_stops_a_trial_nor_bounds_another() -> None:
    assert not CostBound().is_exceeded(V100, [cost(1.0)])
    assert not CostBound().is_exceeded(cost(1e12), [V100, {}])


@pytest.mark.parametrize("other", [{"gpus": "1 x A40"}, {"gpus": "2 x V100"}, {"eta": 1.0}])
def test_costs_on_other_gpus_or_with_another_eta_are_not_compared(other: dict[str, object]) -> None:
    assert not CostBound().is_exceeded(cost(100.0), [cost(1.0, **other)])


@pytest.mark.parametrize("beta", [0.9, float("nan"), float("inf"), True])
def test_beta_is_a_number_of_at_least_1(beta: float) -> None:
    with pytest.raises(InputError, match="beta="):
        CostBound(beta)


@given(st.lists(st.floats(1e-3, 1e9), min_size=1), st.floats(1, 10))
def test_the_cheapest_completed_trial_would_never_have_been_stopped(costs: list[float], beta: float) -> None:
    assert not CostBound(beta).is_exceeded(cost(min(costs)), [cost(one) for one in costs])
