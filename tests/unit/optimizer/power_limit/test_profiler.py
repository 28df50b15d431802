"""The profiler's state machine: it ends, keeps to its limits and ceilings, and finds what Equation 7 asks for."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from zeus.cost import CostModel
from zeus.errors import InputError
from zeus.optimizer.power_limit import profiler
from zeus.optimizer.power_limit.profiler import (
    PAPER_SECONDS,
    PROFILE_STEPS,
    Done,
    Known,
    Measuring,
    Plan,
    Settling,
    State,
    Waiting,
)
from zeus.optimizer.power_limit.selector import (
    Energy,
    MaxSlowdownConstraint,
    OptimumSelector,
    PowerLimitMeasurement,
    Time,
    ZeusCost,
)
from zeus.profile import LimitSlice, PowerProfile

CHUNK_SECONDS = 0.1
LIMITS = (250.0, 225.0, 200.0, 175.0, 150.0, 125.0, 100.0)
Curve = dict[float, tuple[float, float]]  # limit: seconds per step, watts


@dataclass
class Training:
    """What a profiling did to a training: the limits it set in order, and the steps under each."""

    curve: Curve
    noise: Callable[[], float] = lambda: 1.0
    asked: list[float] = field(default_factory=list)
    steps: Counter[float] = field(default_factory=Counter)
    measured: Counter[float] = field(default_factory=Counter)

    def run(self, state: State, most: int = 100_000) -> Done:
        for _ in range(most):
            match state:
                case Done():
                    return state
                case Waiting():
                    state = profiler.step(state, self.curve[max(self.curve)][0])
                case Settling(limit=limit):
                    self._set(limit)
                    self.steps[limit] += 1
                    state = profiler.step(state, self.curve[limit][0] * self.noise())
                case Measuring(limit=limit):
                    self._set(limit)
                    seconds, watts = self.curve[limit]
                    steps = max(1, round(CHUNK_SECONDS / seconds))
                    took = steps * seconds * self.noise()
                    self.steps[limit] += steps
                    self.measured[limit] += steps
                    state = profiler.measured(state, LimitSlice(limit, steps, took, took * watts * self.noise()))
        raise AssertionError(f"not done after {most} steps: {state}")

    def _set(self, limit: float) -> None:
        if not self.asked or self.asked[-1] != limit:
            self.asked.append(limit)


def noise(seed: int, size: float = 0.02) -> Callable[[], float]:
    return partial(lambda rng: max(0.1, rng.gauss(1, size)), random.Random(seed))


def curve_of(slowdowns: list[float], limits: tuple[float, ...] = LIMITS, step_seconds: float = 0.05) -> Curve:
    """Each limit draws what it allows, and its steps are slower than the top's by a factor."""
    return {w: (step_seconds * slow, w) for w, slow in zip(limits, slowdowns, strict=True)}


def known_of(curve: Curve, *limits: float) -> Known:
    return {w: (LimitSlice(w, 10, 10 * curve[w][0], 10 * curve[w][0] * curve[w][1]),) for w in limits}


BOWL = curve_of([1.0, 1.01, 1.03, 1.07, 1.15, 1.4, 2.0])  # costs .5: 250 239.9 231.8 227.4 230 262.5 350

limit_sets = st.lists(st.integers(100, 700).map(float), min_size=1, max_size=9, unique=True).map(
    lambda limits: tuple(sorted(limits, reverse=True))
)
selectors = st.one_of(
    st.builds(ZeusCost, st.floats(0, 1)),
    st.builds(Energy),
    st.builds(Time),
    st.builds(MaxSlowdownConstraint, st.floats(1, 2)),
)


@st.composite
def trainings(draw: st.DrawFn) -> tuple[Plan, Curve, int]:
    """Any plan and any curve at all, with steps from 1 ms to 20 s."""
    limits = draw(limit_sets)
    plan = Plan(
        limits,
        draw(selectors),
        start_watts=draw(st.none() | st.floats(50, 800)),
        wait_steps=draw(st.integers(0, 3)),
        warmup_steps=draw(st.integers(0, 12)),
        profile_steps=draw(st.integers(1, 60)),
    )
    pace = draw(st.sampled_from([0.001, 0.01, 0.09, 0.3, 1.0, 4.0, 20.0]))
    curve = {w: (pace * draw(st.floats(0.5, 3)), draw(st.floats(1, 700))) for w in limits}
    return plan, curve, draw(st.integers(0, 999))


@given(trainings())
def test_it_always_ends_with_a_choice_among_what_was_measured_within_the_plan(
    training: tuple[Plan, Curve, int],
) -> None:
    plan, curve, seed = training
    world = Training(curve, noise(seed))
    done = world.run(profiler.start(plan))
    assert set(world.asked) <= set(plan.limits)
    assert set(done.known) == set(world.measured)
    assert done.best_limit in done.known
    assert set(done.profile.unmeasured) == set(plan.limits) - set(done.known)


@given(trainings())
def test_no_limit_is_measured_beyond_the_ceiling_by_more_than_a_chunk(training: tuple[Plan, Curve, int]) -> None:
    plan, curve, seed = training
    world = Training(curve, noise(seed, 0.0))
    world.run(profiler.start(plan))
    for limit, steps in world.measured.items():
        pace = curve[limit][0]
        chunk = max(1, round(CHUNK_SECONDS / pace))
        # The floor of a look goes before its ceiling: with long chunks the first one may be over it already.
        assert steps * pace < plan.max_seconds + chunk * pace + 1e-9
        if steps * pace > plan.min_seconds + chunk * pace + 1e-9:
            assert world.asked.count(limit) > 1 or steps < plan.profile_steps + chunk


@st.composite
def bowls(draw: st.DrawFn) -> tuple[tuple[float, ...], Curve, float]:
    """Limits, a curve whose step costs at this η are convex over the limits' places, and η."""
    limits = draw(limit_sets)
    eta = draw(st.floats(0, 1))
    best, steepness = draw(st.integers(0, len(limits) - 1)), draw(st.floats(0.01, 0.2))
    rate = {w: eta * w + (1 - eta) * limits[0] for w in limits}
    cost = {w: 10 * (1 + steepness * (i - best) ** 2) for i, w in enumerate(limits)}
    return limits, {w: (cost[w] / rate[w], w) for w in limits}, eta


@given(bowls(), st.none() | st.floats(50, 800))
def test_a_convex_curve_without_noise_gives_exactly_the_choice_of_equation_7(
    bowl: tuple[tuple[float, ...], Curve, float], start_watts: float | None
) -> None:
    limits, curve, eta = bowl
    done = Training(curve).run(profiler.start(Plan(limits, ZeusCost(eta), start_watts)))
    everything = PowerProfile.of(s for chunks in known_of(curve, *limits).values() for s in chunks)
    assert done.best_limit == everything.best_limit(CostModel(eta, limits[0]))


@given(st.lists(st.floats(1, 1.5), min_size=6, max_size=6), st.floats(1, 2))
def test_a_constraint_without_noise_is_kept_exactly(growth: list[float], factor: float) -> None:
    slowdowns = [1.0]
    for more in growth:
        slowdowns.append(slowdowns[-1] * more)
    assume(all(abs(slow / factor - 1) > 1e-6 for slow in slowdowns))
    curve = curve_of(slowdowns)
    done = Training(curve).run(profiler.start(Plan(LIMITS, MaxSlowdownConstraint(factor))))
    assert done.best_limit == min(w for w, slow in zip(LIMITS, slowdowns, strict=True) if slow <= factor)


@given(trainings())
def test_what_is_known_already_is_done_at_once_and_asks_for_nothing(training: tuple[Plan, Curve, int]) -> None:
    plan, curve, _ = training
    state = profiler.start(plan, known_of(curve, *plan.limits))
    assert isinstance(state, Done)
    assert state.profile.unmeasured == ()


def test_a_profile_just_made_is_enough_for_the_same_plan() -> None:
    plan = Plan(LIMITS, ZeusCost(0.5))
    made = Training(BOWL, noise(1)).run(profiler.start(plan)).profile
    again = profiler.start(plan, {one.limit_watts: (one,) for one in made.slices})
    assert isinstance(again, Done)
    assert again.profile == made


def test_it_walks_down_from_the_top_and_stops_where_the_cost_has_risen() -> None:
    world = Training(BOWL)
    done = world.run(profiler.start(Plan(LIMITS, ZeusCost(0.5))))
    assert world.asked == [250, 225, 200, 175, 150, 125, 100][: len(world.asked)]
    assert done.best_limit == 175
    assert Training(BOWL).run(profiler.start(Plan(LIMITS, ZeusCost(0.5), theta=0.05))).profile.unmeasured == (100,)


def test_started_in_the_middle_it_walks_both_ways() -> None:
    world = Training(curve_of([1.0, 1.1, 1.2, 1.3, 1.8, 2.5, 4.0]))
    done = world.run(profiler.start(Plan(LIMITS, Time(), start_watts=180)))
    assert world.asked == [175, 150, 200, 225, 250]
    assert done.best_limit == 250
    assert done.profile.unmeasured == (125, 100)


def test_a_slowdown_is_measured_against_the_top_wherever_the_walk_should_start() -> None:
    world = Training(BOWL)
    world.run(profiler.start(Plan(LIMITS, MaxSlowdownConstraint(1.1), start_watts=150)))
    assert world.asked[0] == 250


def test_another_selector_asks_exactly_for_the_unmeasured_that_could_win() -> None:
    curve = curve_of([1.0, 1.1, 1.3, 1.6, 2.0, 2.6, 3.6])
    fast = Training(curve).run(profiler.start(Plan(LIMITS, Time())))
    assert fast.profile.unmeasured == (175, 150, 125, 100)
    stored = {one.limit_watts: (one,) for one in fast.profile.slices}
    slow = Training(curve)
    done = slow.run(profiler.start(Plan(LIMITS, MaxSlowdownConstraint(1.5)), stored))
    assert slow.asked == [175]  # already too slow: nothing below it can be allowed
    assert done.best_limit == 200
    saving = Training(curve)
    done = saving.run(profiler.start(Plan(LIMITS, Energy()), stored))
    assert saving.asked == [175, 150]  # 300 J against 247.5 J at 225 W: no lower one is worth a look
    assert done.best_limit == 225


def test_a_users_own_selector_sees_every_limit() -> None:
    class Second(OptimumSelector):
        def select(self, measurements: list[PowerLimitMeasurement]) -> int:
            self.seen = [m.power_limit for m in measurements]
            return sorted(self.seen)[1]

    selector = Second()
    done = Training(curve_of([1, 2, 4, 8, 16, 32, 64])).run(profiler.start(Plan(LIMITS, selector)))
    assert done.best_limit == 125
    assert selector.seen == list(LIMITS)


@pytest.mark.parametrize("warmup_steps", [0, 1, 10])
@pytest.mark.parametrize("wait_steps", [0, 1, 5])
def test_no_waiting_and_no_warming_up_work_too(wait_steps: int, warmup_steps: int) -> None:
    plan = Plan(LIMITS, ZeusCost(0.5), wait_steps=wait_steps, warmup_steps=warmup_steps)
    state = profiler.start(plan)
    for _ in range(wait_steps):
        assert isinstance(state, Waiting)
        state = profiler.step(state, 0.05)
    assert isinstance(state, Settling if warmup_steps else Measuring)
    assert Training(BOWL).run(state).best_limit == 175


@pytest.mark.parametrize("selector", [ZeusCost(0.5), Energy(), MaxSlowdownConstraint(1.05)])
def test_one_single_limit_is_measured_and_kept(selector: OptimumSelector) -> None:
    done = Training({200.0: (0.05, 180.0)}).run(profiler.start(Plan((200.0,), selector)))
    assert done.best_limit == 200
    assert done.profile.unmeasured == ()


def test_settling_ends_with_the_warm_up_or_as_soon_as_the_card_follows() -> None:
    short = profiler.step(profiler.start(Plan(LIMITS, Energy(), warmup_steps=10)), 0.001)
    for _ in range(10):
        assert isinstance(short, Settling)
        short = profiler.step(short, 0.001)
    assert isinstance(short, Measuring)
    longer = profiler.step(profiler.start(Plan(LIMITS, Energy(), warmup_steps=10)), 0.2)
    assert isinstance(longer, Settling)
    assert isinstance(profiler.step(longer, 0.2), Measuring)
    assert isinstance(profiler.step(profiler.start(Plan(LIMITS, Energy())), 3.0), Measuring)


def test_very_short_steps_are_measured_for_the_least_time_a_sensor_needs() -> None:
    curve = curve_of([1.0, 1.01, 1.03, 1.07, 1.15, 1.4, 2.0], step_seconds=0.0005)
    world = Training(curve)
    assert world.run(profiler.start(Plan(LIMITS, ZeusCost(0.5)))).best_limit == 175
    assert all(steps * curve[w][0] >= 0.2 - 1e-9 for w, steps in world.measured.items())


def test_of_steps_longer_than_the_ceiling_each_limit_gets_one() -> None:
    curve = curve_of([1.0, 1.01, 1.03, 1.07, 1.15, 1.4, 2.0], step_seconds=30.0)
    world = Training(curve, noise(3, 0.001))
    assert world.run(profiler.start(Plan(LIMITS, ZeusCost(0.5)))).best_limit == 175
    assert set(world.steps.values()) == {1}


def test_a_chunk_of_another_limit_changes_nothing() -> None:
    state = profiler.start(Plan(LIMITS, Energy(), wait_steps=0, warmup_steps=0))
    assert profiler.measured(state, LimitSlice(100, 10, 1.0, 100.0)) is state
    assert profiler.measured(state, LimitSlice(250, 10, 0.1, 100.0)) is not state


def test_events_that_do_not_belong_to_a_state_change_nothing() -> None:
    plan = Plan(LIMITS, Energy(), wait_steps=0, warmup_steps=0)
    measuring = profiler.start(plan)
    assert profiler.step(measuring, 0.1) is measuring
    done = Training(BOWL).run(measuring)
    assert profiler.step(done, 0.1) is done
    assert profiler.measured(done, LimitSlice(250, 10, 1.0, 100.0)) is done


def test_known_limits_outside_the_plan_are_left_out() -> None:
    state = profiler.start(Plan((250.0,), Energy()), known_of(BOWL, 250.0, 100.0))
    assert isinstance(state, Done)
    assert state.best_limit == 250


def test_two_that_noise_cannot_tell_apart_are_looked_at_again_and_clear_losers_are_not() -> None:
    curve = curve_of([1.0, 1.0, 1.0, 1.0, 1.6, 2.2, 3.0])
    curve = {w: (s, 200.0 if w > 180 else 198.0) for w, (s, _) in curve.items()}
    world = Training(curve, noise(5))
    done = world.run(profiler.start(Plan(LIMITS, ZeusCost(0.5))))
    assert done.best_limit >= 175
    assert all(world.asked.count(w) == 1 for w in done.known if w < 175)
    assert any(world.asked.count(w) > 1 for w in LIMITS if w >= 175)


def test_a_card_that_reads_no_energy_still_ends() -> None:
    curve = {w: (s, 0.0) for w, (s, _) in BOWL.items()}
    for selector in (Energy(), ZeusCost(1), ZeusCost(0.5)):
        assert Training(curve, noise(6)).run(profiler.start(Plan(LIMITS, selector))).best_limit in LIMITS


@pytest.mark.parametrize("limits", [(), (100.0, 200.0), (200.0, 200.0)])
def test_limits_not_from_high_to_low_are_refused(limits: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="power limits"):
        Plan(limits, Energy())


@pytest.mark.parametrize("wrong", [{"wait_steps": -1}, {"warmup_steps": -1}, {"profile_steps": 0}])
def test_a_plan_with_impossible_steps_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Plan(LIMITS, Energy(), **wrong)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- the paper's plan

paces = st.sampled_from([0.001, 0.05, 0.3, 2.0, 12.0])


def train(plan: Plan, pace: float, known: Known | None = None, seed: int = 0) -> tuple[Done, list[float]]:
    """Train until the profiler is done. Steps are three times slower at the lowest limit, and chunks are noisy."""
    slowdowns = [1 + 2 * (LIMITS[0] - limit) / 150 for limit in LIMITS]
    world = Training(curve_of(slowdowns, step_seconds=pace), noise(seed, 0.003))
    return world.run(profiler.start(plan, known)), world.asked


def seconds_at(done: Done) -> dict[float, float]:
    return {limit: sum(chunk.seconds for chunk in chunks) for limit, chunks in done.known.items()}


@given(selectors, paces, st.integers(0, 99))
def test_the_papers_plan_measures_every_limit_once_for_five_seconds(
    selector: OptimumSelector, pace: float, seed: int
) -> None:
    done, order = train(Plan(LIMITS, selector).of_paper(), pace, seed=seed)
    assert order == list(LIMITS)
    assert done.profile.unmeasured == ()
    for seconds in seconds_at(done).values():
        assert PAPER_SECONDS <= seconds < PAPER_SECONDS + 3.1 * max(pace, 0.1)  # until a chunk or a step has ended


def test_the_walk_leaves_limits_out_and_looks_for_less() -> None:
    done, order = train(Plan(LIMITS, Time()), 0.05)
    assert set(order) < set(LIMITS)
    assert max(seconds_at(done).values()) < PAPER_SECONDS


@given(st.integers(1, 60).filter(lambda steps: steps != PROFILE_STEPS), paces)
def test_steps_that_the_user_asks_for_end_a_look_of_the_papers_plan_early(steps: int, pace: float) -> None:
    plan = Plan(LIMITS, ZeusCost(0.5), profile_steps=steps).of_paper()
    done, order = train(plan, pace)
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
    done, _ = train(Plan(LIMITS, first).of_paper(), pace)
    stored = {one.limit_watts: (one,) for one in done.profile.slices}
    assert isinstance(profiler.start(Plan(LIMITS, second), stored), Done)


@given(selectors, paces)
def test_of_what_the_walk_measured_the_papers_plan_measures_only_the_rest(
    selector: OptimumSelector, pace: float
) -> None:
    walked, _ = train(Plan(LIMITS, selector), pace)
    stored = {one.limit_watts: (one,) for one in walked.profile.slices}
    done, order = train(Plan(LIMITS, selector).of_paper(), pace, stored)
    assert order == sorted(walked.profile.unmeasured, reverse=True)
    assert all(done.known[limit] == chunks for limit, chunks in stored.items())
    assert all(seconds_at(done)[limit] >= PAPER_SECONDS for limit in order)
