"""Algorithms 1 and 2 against their closed forms."""

from __future__ import annotations

import math
import random
from statistics import fmean, pvariance

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.policy.common import Sample
from zeus.policy.paper.thompson import FLAT, Certain, Gaussian, beliefs, observe, predict, relative_variance
from zeus.policy.paper.transfer import Arm, Observation

costs = st.floats(1.0, 1e6)
several = st.lists(costs, min_size=2, max_size=12)


@given(several, st.floats(0, 1e6), st.floats(0, 10))
def test_the_posterior_equals_the_closed_form(seen: list[float], prior_mean: float, prior_precision: float) -> None:
    variance = pvariance(seen)
    assume(variance > 1e-6 * fmean(seen) ** 2)
    belief = observe(Sample.of(seen), prior=Gaussian(prior_mean, prior_precision))
    assert isinstance(belief, Gaussian)
    assert belief.precision == pytest.approx(prior_precision + len(seen) / variance, rel=1e-6)  # line 3
    closed = (prior_precision * prior_mean + sum(seen) / variance) / (prior_precision + len(seen) / variance)
    assert belief.mean == pytest.approx(closed, rel=1e-6)  # line 4


@given(several)
def test_with_a_flat_prior_the_belief_is_the_mean_and_its_standard_error(seen: list[float]) -> None:
    assume(pvariance(seen) > 1e-6 * fmean(seen) ** 2)
    belief = observe(Sample.of(seen))
    assert isinstance(belief, Gaussian)
    assert belief.mean == pytest.approx(fmean(seen))
    assert belief.precision == pytest.approx(len(seen) / pvariance(seen), rel=1e-6)


@given(costs, st.integers(2, 50), st.integers())
def test_after_equal_costs_the_draw_is_the_mean(cost: float, times: int, seed: int) -> None:
    belief = observe(Sample.of([cost] * times))
    assert belief == Certain(cost)
    assert belief.draw(random.Random(seed)) == cost


@given(costs, st.lists(several, min_size=1, max_size=4))
def test_after_one_observation_the_spread_is_that_of_the_other_arms(cost: float, others: list[list[float]]) -> None:
    pooled = sum(pvariance(o) / fmean(o) ** 2 * len(o) for o in others) / sum(len(o) for o in others)
    assume(pooled > 1e-6)
    belief = observe(Sample.of([cost]), [Sample.of(o) for o in others])
    assert isinstance(belief, Gaussian)
    assert belief.mean == pytest.approx(cost)
    assert 1 / belief.precision == pytest.approx(pooled * cost**2, rel=1e-6)


def test_arms_seen_once_say_nothing_of_spread() -> None:
    assert relative_variance([Sample.of([5.0]), Sample()]) == 0
    assert observe(Sample.of([5.0]), [Sample.of([7.0])]) == Certain(5.0)


def test_an_arm_never_seen_is_its_prior() -> None:
    assert observe(Sample()) == FLAT
    assert observe(Sample(), prior=Gaussian(3.0, 2.0)) == Gaussian(3.0, 2.0)


@given(st.lists(costs, max_size=8), st.lists(costs, max_size=8), st.floats(0.1, 10))
def test_samples_merge_and_scale_like_the_values_they_stand_for(a: list[float], b: list[float], factor: float) -> None:
    merged, whole = Sample.of(a).merge(Sample.of(b)), Sample.of(a + b)
    assert merged.count == whole.count
    assert merged.mean == pytest.approx(whole.mean)
    assert merged.squares == pytest.approx(whole.squares, rel=1e-6, abs=1e-6 * whole.mean**2)
    scaled, direct = whole.scale(factor), Sample.of(x * factor for x in a + b)
    assert scaled.mean == pytest.approx(direct.mean)
    assert scaled.squares == pytest.approx(direct.squares, rel=1e-6, abs=1e-6 * direct.mean**2)


@given(st.lists(costs, min_size=1, max_size=30), st.integers(1, 10))
def test_a_window_keeps_the_most_recent_observations(seen: list[float], window: int) -> None:
    arm = Arm(window)
    for cost in seen:
        arm = arm.add(Observation("V100", cost, 3))
    assert arm.costs("V100", None) == Sample.of(seen[-window:])


@pytest.mark.parametrize("cost", [0.0, -1.0, math.nan, math.inf])
def test_a_cost_that_cannot_be_is_rejected(cost: float) -> None:
    with pytest.raises(InputError, match="finite number above 0"):
        Observation("V100", cost, 3)


@given(st.dictionaries(st.integers(1, 999), several, min_size=1, max_size=6), st.integers())
def test_the_choice_is_one_of_the_arms(seen: dict[int, list[float]], seed: int) -> None:
    arms = beliefs({size: Sample.of(values) for size, values in seen.items()})
    assert predict(arms, random.Random(seed)) in seen


def test_each_arm_has_a_draw_of_its_own() -> None:
    """With one draw shared by all arms, the arm with the smaller mean would win every time at equal spread."""
    arms = {8: Gaussian(10.0, 1.0), 16: Gaussian(10.1, 1.0)}
    chosen = [predict(arms, random.Random(seed)) for seed in range(400)]
    assert 120 < chosen.count(16) < 240


def test_nothing_can_be_drawn_from_what_is_not_known() -> None:
    for arms in ({}, {8: FLAT}):
        with pytest.raises(InputError, match="informative prior"):
            predict(arms, random.Random(0))
