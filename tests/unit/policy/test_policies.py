"""The policies, for any history: asks, tells, losses and late results in any order, on two GPU models."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.policy_moves import SIZES, bounded_asks, jobs, live, moves
from support.stories import CRASHED, Story, converged, fold, job, stopped
from zeus.cost import fits
from zeus.errors import InputError
from zeus.job import Ending, Event, JobSpec, Phase, Trial, replace
from zeus.policy.paper.pruning import Walk
from zeus.policy.paper.stopping import Cheapest, cost_limit
from zeus.policy.random_stream import Stream
from zeus.policy.registry import POLICIES, find_policy

PAPER = ("paper", "paper:no-pruning", "paper:no-early-stop")
policies = st.sampled_from([find_policy(name) for name in (*PAPER, "structured", "structured:no-alarm")])


def facts(story: Story) -> list[Event]:
    return [*story.trials, *(event for event in story.events if not isinstance(event, Trial))]


@given(jobs, policies, moves, st.randoms(use_true_random=False))
def test_folding_a_history_is_replaying_it(spec: JobSpec, policy: Any, told: Any, shuffler: random.Random) -> None:
    story = live(spec, policy, told).story
    shuffled = facts(story)
    shuffler.shuffle(shuffled)
    assert fold(policy, spec, shuffled) == story.state


@given(jobs, policies, moves)
def test_without_beta_no_trial_is_stopped_for_its_cost(spec: JobSpec, policy: Any, told: Any) -> None:
    story = live(replace(spec, beta_knob=None), policy, told).story
    assert {trial.decision.cost_limit for trial in story.trials} <= {None}
    for trial in story.trials:
        assert policy.keep_going(story.state, trial, 1, 1e12) is (spec.max_epochs > 1)


@pytest.mark.parametrize("name", PAPER)
@given(st.data())
def test_beyond_pruning_no_size_is_offered_under_a_bound_that_one_epoch_of_it_breaks(
    name: str, data: st.DataObject
) -> None:
    """Where epochs are as dear as bounds, unlike in most lives drawn by chance."""
    for state, trial in data.draw(bounded_asks(find_policy(name))):
        epoch = state.epoch_costs.get(trial.ask.gpu_model, {}).get(trial.batch_size)
        if epoch is not None and trial.decision.phase is not Phase.PRUNING:
            assert fits(epoch, trial.decision.cost_limit)


@pytest.mark.parametrize("name", ["paper", "structured"])
def test_the_last_try_calls_no_size_the_best_before_one_has_reached_the_target(name: str) -> None:
    story = Story(job(policy=name), find_policy(name))
    first = story.ask(1, last=True)
    assert "no size offered has reached the target yet; the last try has no bound" in first.decision.reason
    story.tell(first, converged(200.0, 20))
    assert "is the best size so far" in story.ask(2, last=True).decision.reason


def test_beside_an_exploration_a_best_known_size_that_no_longer_fits_runs_without_a_bound() -> None:
    story = Story(job(beta_knob=2.0))
    story.profile(16, 10.0)
    story.tell(story.ask(1), converged(200.0, 20))
    explores, beside = story.ask(2), story.ask(3)
    story.profile(8, 25.0)
    story.tell(beside, converged(10.0, 1))  # by luck: now the bound is 20
    story.tell(explores, converged(50.0, 2))
    assert story.ask(4).decision.phase is Phase.PRUNING
    decision = story.ask(5).decision
    assert (decision.batch_size, decision.phase, decision.cost_limit) == (8, Phase.UNBOUNDED, None)


@given(jobs, policies, moves)
def test_any_decision_can_be_made_again_alone(spec: JobSpec, policy: Any, told: Any) -> None:
    story = live(spec, policy, told).story
    for trial in story.trials:
        state = policy.start(spec)
        for event in story.events[: trial.asked - 1]:
            state = policy.observe(state, event)
        assert policy.decide(state, Stream(story.seed, trial.number), trial.ask) == trial.decision


@given(jobs, policies, moves)
def test_no_decision_is_outside_the_sizes_or_one_that_crashed(spec: JobSpec, policy: Any, told: Any) -> None:
    for trial, banned in live(spec, policy, told).forbidden:
        assert trial.batch_size in spec.batch_sizes
        assert trial.batch_size not in banned
        assert trial.decision.reason


@given(jobs, policies, moves)
def test_only_convergence_tightens_the_bound(spec: JobSpec, policy: Any, told: Any) -> None:
    failing = live(spec, policy, [m for m in told if m[0] != "tell" or m[1].ending is not Ending.CONVERGED]).story
    assert all(t.decision.cost_limit is None for t in failing.trials)


def test_events_out_of_order_are_refused() -> None:
    story = Story(job())
    trial = story.ask()
    with pytest.raises(InputError, match="event 1 came after event 1"):
        story.policy.observe(story.state, trial)


def test_a_default_policy_always_runs_the_default() -> None:
    story = Story(job(), find_policy("default"))
    assert story.run(dict.fromkeys((8, 16, 32), converged(5.0)), 5) == [16] * 5
    story.tell(story.ask(), CRASHED)
    with pytest.raises(InputError, match="default batch size 16 crashed"):
        story.ask()


def test_a_policy_is_found_by_name_and_version() -> None:
    assert find_policy("paper", 1) is POLICIES["paper", 1]
    with pytest.raises(InputError, match="Did you mean 'paper'"):
        find_policy("papre")
    with pytest.raises(InputError, match="has no version 7"):
        find_policy("paper", 7)


# ---------------------------------------------------------------------- pruning and stopping


@given(
    st.lists(st.sampled_from(SIZES), min_size=2, max_size=5, unique=True),
    st.integers(0, 4),
    st.lists(st.tuples(st.booleans(), st.floats(1, 99)), min_size=60, max_size=60),
)
def test_a_walk_ends_with_sizes_that_converged(sizes: list[int], default: int, ends: list[tuple[bool, float]]) -> None:
    walk = Walk.start(tuple(sorted(sizes)), sizes[default % len(sizes)], rounds=2)
    seen: set[int] = set()
    for ok, cost in ends:
        if walk.done:
            break
        assert walk.current in walk.sizes
        seen |= {walk.current} if ok else set()
        walk = walk.step(converged=ok, cost=cost)
    if walk.done:
        assert walk.sizes
        assert set(walk.sizes) <= seen
        assert walk.cheapest[walk.default] == min(walk.cheapest[b] for b in walk.sizes)


@given(st.lists(st.sampled_from(SIZES), min_size=2, max_size=5, unique=True).map(sorted), st.integers(0, 4), st.data())
def test_a_size_that_converged_once_but_not_in_the_last_round_is_pruned(
    sizes: list[int], default: int, data: st.DataObject
) -> None:
    walk = Walk.start(tuple(sizes), sizes[default % len(sizes)], rounds=2)
    for _ in sizes:
        walk = walk.step(converged=True, cost=data.draw(st.floats(1, 99)))
    assert (walk.sizes, walk.rounds_left) == (tuple(sizes), 1)
    converged = set()
    while not walk.done:
        size, ok = walk.current, data.draw(st.booleans())
        converged |= {size} if ok else set()
        walk = walk.step(converged=ok, cost=50.0)
    assert set(walk.sizes) == (converged or set(sizes))  # if all failed, those that converged once stay


@given(st.lists(st.floats(1, 1e3), max_size=3), st.floats(1, 1e3), st.sampled_from([1.0, 2.0]))
def test_the_bound_is_beta_times_what_all_tries_of_the_cheapest_recurrence_cost(
    failed: list[float], last: float, beta: float
) -> None:
    story = Story(job(beta_knob=beta))
    for attempt, cost in enumerate(failed, 1):
        story.tell(story.ask(1, attempt=attempt), stopped(cost))
    story.tell(story.ask(1, attempt=len(failed) + 1), converged(last))
    assert story.ask(2).decision.cost_limit == pytest.approx(beta * (sum(failed) + last))


@given(st.lists(st.floats(1, 1e6), max_size=20), st.integers(0, 5), st.floats(1, 4))
def test_the_bound_is_beta_times_the_cheapest_in_the_window(seen: list[float], window: int, beta: float) -> None:
    cheapest = Cheapest(window)
    for cost in seen:
        cheapest = cheapest.add(cost)
    kept = seen[-window:] if window else seen
    assert cost_limit(cheapest, beta) == (beta * min(kept) if kept else None)


@given(st.floats(1, 1e9))
def test_with_beta_one_a_best_size_without_noise_is_not_locked_out(cost: float) -> None:
    tenths = sum([cost / 10] * 10)  # what an epoch-wise sum of the same run comes to
    assert fits(tenths, cost_limit(Cheapest().add(cost), 1.0))
    assert not fits(cost * (1 + 1e-6), cost)
    assert fits(1e300, None)


def test_one_size_is_run_for_ever_without_a_bound() -> None:
    story = Story(job(batch_sizes=(16,)))
    story.run({16: converged(5.0)}, 4)
    assert {(t.batch_size, t.decision.phase, t.decision.cost_limit) for t in story.trials} == {
        (16, Phase.SAMPLING, None)
    }


def test_informative_priors_are_used_where_given() -> None:
    """Without pruning and with a prior, sizes never run are drawn from it: it is the owner's word, not a look each."""
    spec = job(num_pruning_rounds=0, mab_prior_mean=100.0, mab_prior_precision=1.0)
    story = Story(spec)
    assert story.ask().decision.reason.endswith("has the lowest of 3 sampled mean costs")
    costly = Story(job(num_pruning_rounds=0, mab_prior_mean=1e6, mab_prior_precision=1e-6))
    costly.tell(costly.ask(), converged(5.0))
    first = costly.trials[0].batch_size
    assert costly.run({8: converged(5.0), 16: converged(5.0), 32: converged(5.0)}, 10) == [first] * 10
