"""Power profiles: Equations 5 and 7, and the file they are kept in."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.cost import CostModel
from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile

watts = st.integers(50, 700).map(float)
slices = st.builds(
    LimitSlice,
    limit_watts=watts,
    steps=st.integers(1, 10_000),
    seconds=st.floats(1e-3, 1e4),
    joules=st.floats(0, 1e6),
)
profiles = st.builds(PowerProfile.of, st.lists(slices, min_size=1, max_size=30), st.lists(watts, max_size=10))
costs = st.builds(CostModel, eta=st.floats(0, 1), max_watts=st.floats(50, 5000))


@given(profiles, costs, st.integers(1, 10**6))
def test_equation_5_is_cost_rate_over_throughput(profile: PowerProfile, cost: CostModel, steps: int) -> None:
    for one in profile.slices:
        throughput = one.steps / one.seconds
        expected = (cost.eta * one.watts + (1 - cost.eta) * cost.max_watts) / throughput
        assert profile.step_cost(cost, one.limit_watts) == pytest.approx(expected)
        assert profile.epoch_cost(cost, one.limit_watts, steps) == pytest.approx(steps * expected)


@given(profiles, costs)
def test_equation_2_over_the_slice_says_the_same_as_equation_5(profile: PowerProfile, cost: CostModel) -> None:
    for one in profile.slices:
        assert profile.epoch_cost(cost, one.limit_watts, one.steps) == pytest.approx(cost.cost(one.joules, one.seconds))


@given(profiles, costs)
def test_equation_7_picks_a_measured_limit_that_none_undercuts(profile: PowerProfile, cost: CostModel) -> None:
    best = profile.best_limit(cost)
    assert all(profile.step_cost(cost, best) <= profile.step_cost(cost, s.limit_watts) for s in profile.slices)


def test_of_equal_limits_the_highest_is_picked() -> None:
    profile = PowerProfile.of([LimitSlice(w, 1, 1.0, 100.0) for w in (150.0, 250.0, 200.0)])
    assert profile.best_limit(CostModel(0.5, 250)) == 250


@given(st.lists(slices, min_size=1, max_size=30))
def test_slices_of_one_limit_are_added_up(parts: list[LimitSlice]) -> None:
    profile = PowerProfile.of(parts)
    assert sum(s.steps for s in profile.slices) == sum(s.steps for s in parts)
    assert math.fsum(s.joules for s in profile.slices) == pytest.approx(math.fsum(s.joules for s in parts))
    assert math.fsum(s.seconds for s in profile.slices) == pytest.approx(math.fsum(s.seconds for s in parts))
    limits = [s.limit_watts for s in profile.slices]
    assert limits == sorted(set(limits), reverse=True)


@given(profiles)
def test_every_limit_is_either_measured_or_named_as_unmeasured(profile: PowerProfile) -> None:
    measured = {s.limit_watts for s in profile.slices}
    assert measured.isdisjoint(profile.unmeasured)
    assert measured.union(profile.unmeasured) == set(profile.limits)


@given(profiles)
def test_a_profile_survives_json(profile: PowerProfile) -> None:
    assert PowerProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_a_limit_that_is_not_whole_survives_json_too() -> None:
    profile = PowerProfile.of([LimitSlice(187.5, 3, 0.25, 40)], [212.5])
    assert PowerProfile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_the_file_that_users_know_is_read_and_ours_can_be_read_like_it() -> None:
    known = {
        "measurements": [
            {"power_limit": 300, "energy": 2053.7, "time": 9.2},
            {"power_limit": 200, "energy": 1600.0, "time": 10.1},
        ]
    }
    profile = PowerProfile.from_json(known)
    assert profile.at(300).joules == 2053.7
    assert profile.best_limit(CostModel(1, 300)) == 200
    assert profile.best_limit(CostModel(0, 300)) == 300
    assert profile.unmeasured == ()
    for row, theirs in zip(profile.to_json()["measurements"], known["measurements"], strict=True):
        assert theirs.items() <= row.items()
        assert isinstance(row["power_limit"], int)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"measurements": [{"power_limit": 300, "energy": 1.0}]},
        {"measurements": [{"power_limit": "high", "energy": 1.0, "time": 1.0}]},
        {"measurements": [{"power_limit": 300, "energy": 1.0, "time": 0.0}]},
        {"measurements": [{"power_limit": 300, "energy": -1.0, "time": 1.0}]},
        {"measurements": [7]},
        {"measurements": 7},
        [],
    ],
)
def test_what_is_not_a_profile_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError):
        PowerProfile.from_json(data)


def test_a_limit_that_was_not_measured_has_no_cost() -> None:
    profile = PowerProfile.of([LimitSlice(250, 1, 1.0, 200.0)], [100])
    with pytest.raises(InputError, match="nothing was measured at 100 W"):
        profile.step_cost(CostModel(0.5, 250), 100)


def test_an_empty_profile_has_no_best_limit() -> None:
    with pytest.raises(InputError, match="empty"):
        PowerProfile.of([], [250.0]).best_limit(CostModel(0.5, 250))


@pytest.mark.parametrize(
    ("steps", "seconds", "joules"), [(0, 1, 1), (1, 0, 1), (1, 1, -1), (1, math.nan, 1), (1, 1, math.inf)]
)
def test_a_slice_has_steps_and_time_and_known_energy(steps: int, seconds: float, joules: float) -> None:
    with pytest.raises(InputError):
        LimitSlice(250, steps, seconds, joules)


@given(profiles, profiles)
def test_an_earlier_profile_says_nothing_of_limits_that_were_candidates_again(
    now: PowerProfile, earlier: PowerProfile
) -> None:
    """Where one was left out this time, as it could not win, an old measurement of it does not come back."""
    both = now.beside(earlier)
    assert now.beside(None) == now
    assert set(both.limits) == {*now.limits, *earlier.limits}
    assert [one for one in both.slices if one.limit_watts in now.limits] == list(now.slices)
    others = [one for one in earlier.slices if one.limit_watts not in now.limits]
    assert [one for one in both.slices if one.limit_watts not in now.limits] == others


def test_the_scatter_of_slices_tells_the_error_of_their_sum() -> None:
    exact = PowerProfile.of([LimitSlice(250, 10, 1.0, 200), LimitSlice(250, 10, 1.0, 200)])
    assert (exact.at(250).joules_error, exact.at(250).seconds_error) == (0.0, 0.0)
    noisy = PowerProfile.of([LimitSlice(250, 10, 1.0, 190), LimitSlice(250, 10, 1.0, 210), LimitSlice(150, 5, 1, 80)])
    high, low = noisy.at(250), noisy.at(150)
    assert high.joules_error == pytest.approx(400 * (2 * 10 * 0.05**2) ** 0.5 / 20**0.5)
    assert low.joules_error is not None and high.joules_error is not None
    assert low.joules_error / 80 == pytest.approx(2 * high.joules_error / 400)  # a quarter of the steps, same scatter
    assert PowerProfile.from_json(noisy.to_json()) == noisy


def test_one_slice_has_no_error_of_its_own() -> None:
    alone = PowerProfile.of([LimitSlice(250, 10, 1.0, 200)])
    assert alone.at(250).joules_error is None and "energy_error" not in alone.to_json()["measurements"][0]
