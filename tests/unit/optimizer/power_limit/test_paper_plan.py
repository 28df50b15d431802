"""The paper's plan of the profiler: every limit, five seconds, once. And profiles that either plan made."""

from __future__ import annotations

import math
import random

from hypothesis import given
from hypothesis import strategies as st

from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.profiler import PAPER_SECONDS, PROFILE_STEPS, Done, Known, Measuring, Plan, Settling
from zeus.optimizer.power_limit.selector import Energy, MaxSlowdownConstraint, OptimumSelector, Time, ZeusCost
from zeus.profile import LimitSlice

LIMITS = (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
selectors = st.one_of(
    st.builds(ZeusCost, st.floats(0, 1)),
    st.builds(Energy),
    st.builds(Time),
    st.builds(MaxSlowdownConstraint, st.floats(1, 2)),
)
paces = st.sampled_from([0.001, 0.05, 0.3, 2.0, 12.0])


def run(plan: Plan, pace: float, known: Known | None = None, seed: int = 0) -> tuple[Done, list[float]]:
    """Train until the profiler is done. Steps are three times slower at the lowest limit, and chunks are noisy."""
    rng, order = random.Random(seed), list[float]()
    state = profiler.start(plan, known)
    while not isinstance(state, Done):
        limit = state.limit if isinstance(state, Settling | Measuring) else LIMITS[0]
        seconds = pace * (1 + 2 * (LIMITS[0] - limit) / 150)
        if isinstance(state, Measuring):
            order += [limit] if order[-1:] != [limit] else []
            steps = max(1, math.ceil(0.1 / seconds))
            took = steps * seconds * rng.gauss(1, 0.003)
            state = profiler.measured(state, LimitSlice(limit, steps, took, took * limit * rng.gauss(1, 0.003)))
        else:
            state = profiler.step(state, seconds)
    return state, order


def seconds_at(done: Done) -> dict[float, float]:
    return {limit: sum(chunk.seconds for chunk in chunks) for limit, chunks in done.known.items()}


@given(selectors, paces, st.integers(0, 99))
def test_the_papers_plan_measures_every_limit_once_for_five_seconds(
    selector: OptimumSelector, pace: float, seed: int
) -> None:
    done, order = run(Plan(LIMITS, selector).of_paper(), pace, seed=seed)
    assert order == list(LIMITS)
    assert done.profile.unmeasured == ()
    for seconds in seconds_at(done).values():
        assert PAPER_SECONDS <= seconds < PAPER_SECONDS + 3.1 * max(pace, 0.1)  # until a chunk or a step has ended


def test_the_walk_leaves_limits_out_and_looks_for_less() -> None:
    done, order = run(Plan(LIMITS, Time()), 0.05)
    assert set(order) < set(LIMITS)
    assert max(seconds_at(done).values()) < PAPER_SECONDS


@given(st.integers(1, 60).filter(lambda steps: steps != PROFILE_STEPS), paces)
def test_steps_that_the_user_asks_for_end_a_look_of_the_papers_plan_early(steps: int, pace: float) -> None:
    plan = Plan(LIMITS, ZeusCost(0.5), profile_steps=steps).of_paper()
    done, order = run(plan, pace)
    assert order == list(LIMITS)
    for limit, chunks in done.known.items():
        of_one = sum(chunk.seconds for chunk in chunks) / sum(chunk.steps for chunk in chunks)
        chunk = max(1, math.ceil(0.1 / of_one) + 1)
        most = max(steps, math.ceil(plan.min_seconds / of_one)) + chunk
        assert sum(one.steps for one in chunks) <= min(most, math.ceil(PAPER_SECONDS / of_one) + chunk), limit


@given(selectors, selectors, paces)
def test_what_the_papers_plan_measured_is_all_that_the_walk_wants(
    first: OptimumSelector, second: OptimumSelector, pace: float
) -> None:
    done, _ = run(Plan(LIMITS, first).of_paper(), pace)
    stored = {one.limit_watts: (one,) for one in done.profile.slices}
    assert isinstance(profiler.start(Plan(LIMITS, second), stored), Done)


@given(selectors, paces)
def test_of_what_the_walk_measured_the_papers_plan_measures_only_the_rest(
    selector: OptimumSelector, pace: float
) -> None:
    walked, _ = run(Plan(LIMITS, selector), pace)
    stored = {one.limit_watts: (one,) for one in walked.profile.slices}
    done, order = run(Plan(LIMITS, selector).of_paper(), pace, stored)
    assert order == sorted(walked.profile.unmeasured, reverse=True)
    assert all(done.known[limit] == chunks for limit, chunks in stored.items())
    assert all(seconds_at(done)[limit] >= PAPER_SECONDS for limit in order)
