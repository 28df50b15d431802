"""Replays of small made-up workloads: what is charged, who knows what when, and what baselines come to."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from zeus.errors import InputError
from zeus.job import Ending, Event, Phase, Trial
from zeus.policy.registry import find_policy
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate import baselines, regret
from zeus.simulate.replay import ReplayedRecurrence, SimulatedJob, draw, job_of, quick_profile, replay
from zeus.simulate.results import simulate
from zeus.simulate.workload import Workload

NAMES = ["paper", "paper:no-pruning", "paper:no-early-stop", "paper:no-jit", "default", "grid", "grid-free", "oracle"]


def epoch(watts: float, seconds: float, average: float) -> LimitSlice:
    return LimitSlice(watts, 1, seconds, average * seconds)


PROFILES = {
    8: PowerProfile.of([epoch(200, 7, 110), epoch(100, 8.5, 80)]),
    16: PowerProfile.of([epoch(200, 6, 150), epoch(100, 9, 90)]),
    32: PowerProfile.of([epoch(200, 4, 180), epoch(100, 7, 95)]),
}
RUNS: dict[int, tuple[int | None, ...]] = {8: (5, 6), 16: (6, 8), 32: (14, None)}
SMALL = Workload("small", "toy", 200.0, 20, 16, RUNS, PROFILES)

workloads = st.builds(
    lambda runs, default, max_epochs: Workload("any", "toy", 200.0, max_epochs, default, runs, PROFILES),
    st.fixed_dictionaries(
        {size: st.lists(st.none() | st.integers(1, 30), min_size=1, max_size=3).map(tuple) for size in PROFILES}
    ),
    st.sampled_from(sorted(PROFILES)),
    st.integers(1, 25),
)


def play(name: str, workload: Workload = SMALL, seed: int = 0, n: int = 40, eta: float = 0.5, **more: Any) -> Any:
    who = baselines.contender(name, workload, eta)
    knobs = {k: more.pop(k) for k in ("beta_knob", "window_size") if k in more}
    job = job_of(workload, eta_knob=eta, **knobs)
    return list(islice(replay(workload, who.policy, job, seed, limits=who.limits, **more), n))


# ---------------------------------------------------------------------- what is charged


def is_hopeless(workload: Workload, one: ReplayedRecurrence, name: str = "") -> bool:
    """Every size that this contender offers has run to max_epochs twice without the target."""
    missed = Counter(t.decision.batch_size for t in one.tries if t.outcome.ending is Ending.NOT_CONVERGED)
    return all(missed[size] >= 2 for size in ([workload.default] if name == "default" else workload.sizes))


@given(
    workloads,
    st.sampled_from(NAMES[:-1]),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.sampled_from([1.0, 2.0, 5.0]),
    st.sampled_from([0, 1, 2, 10]),
    st.integers(1, 4),
)
def test_every_recurrence_ends_and_is_charged_what_its_epochs_use(
    workload: Workload, name: str, seed: int, eta: float, beta: float, window: int, concurrency: int
) -> None:
    cost = workload.cost_model(eta)
    past = play(name, workload, seed, 12, eta, beta_knob=beta, window_size=window, concurrency=concurrency)
    for one in past:
        assert one.converged or len(one.tries) == 20 or is_hopeless(workload, one, name)
        for t in one.tries:
            size = t.decision.batch_size
            at = workload.profiles[size].at(t.limit_watts)
            assert t.cost == cost.cost(t.outcome.joules or 0, t.outcome.seconds)
            if not t.outcome.epochs:  # not even one fitted: nothing is charged, but the try counts
                assert (t.outcome.ending, t.cost) == (Ending.STOPPED, 0.0)
                continue
            assert t.outcome.epochs <= workload.max_epochs
            rest, first = (t.outcome.epochs - 1) * at.seconds, t.outcome.seconds
            mean = workload.profiling_epoch(size).seconds
            assert first - rest == pytest.approx(at.seconds) or first - rest == pytest.approx(mean)
            if t.decision.cost_limit is not None and t.cost > t.decision.cost_limit * (1 + 1e-8):
                assert t.outcome.epochs == 1 and first == pytest.approx(mean)  # nobody knew what an epoch costs
            if t.outcome.ending is Ending.CONVERGED:
                assert t.outcome.epochs in workload.runs[size]
            elif t.outcome.ending is Ending.NOT_CONVERGED:
                assert t.outcome.epochs == workload.max_epochs
    assert all(one.cost == pytest.approx(sum(t.cost for t in one.tries)) for one in past)


@given(workloads, st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([1.0, 2.0]), st.integers(0, 2))
def test_a_try_ends_at_its_traced_epoch_or_where_one_more_would_cross_the_bound(
    workload: Workload, seed: int, eta: float, beta: float, window: int
) -> None:
    model, converged = workload.cost_model(eta), list[float]()
    for number, one in enumerate(play("paper", workload, seed, 12, eta, beta_knob=beta, window_size=window), start=1):
        bound = beta * min(converged[-window:]) if converged else None
        for attempt, t in enumerate(one.tries, start=1):
            size, epochs = t.decision.batch_size, t.outcome.epochs
            if t.decision.phase is not Phase.UNBOUNDED:
                assert t.decision.cost_limit == (None if bound is None else pytest.approx(bound))
            needed = draw(workload, seed, number, attempt, size)
            reaches = needed is not None and needed <= workload.max_epochs
            whole = needed if reaches else workload.max_epochs
            if t.outcome.ending is not Ending.STOPPED:
                assert epochs == whole
                assert (t.outcome.ending is Ending.CONVERGED) == reaches
                continue
            another = workload.best_epoch(size, eta)
            assert whole is not None
            assert epochs < whole
            following = model.cost(another.joules, another.seconds) if epochs else t.outcome.next_epoch_cost or 0.0
            assert t.cost + following > (t.decision.cost_limit or 0.0)
        if one.converged:
            converged.append(one.cost)


def test_only_the_first_run_of_a_size_pays_for_profiling() -> None:
    first: dict[int, float] = {}
    for one in play("paper", n=30):
        for t in one.tries:
            size, at = t.decision.batch_size, SMALL.profiles[t.decision.batch_size].at(t.limit_watts)
            beyond = t.outcome.seconds - t.outcome.epochs * at.seconds
            if not t.outcome.epochs:
                continue
            known = size in first
            first.setdefault(size, beyond)
            assert beyond == pytest.approx(0 if known else SMALL.profiling_epoch(size).seconds - at.seconds)
    assert len(first) > 1


def moved(name: str, profiled: bool) -> list[ReplayedRecurrence]:
    """The first recurrences on another GPU, on which every epoch takes twice as long."""
    slow = {
        size: PowerProfile.of([LimitSlice(s.limit_watts, 1, 2 * s.seconds, 2 * s.joules) for s in one.slices])
        for size, one in PROFILES.items()
    }
    other = Workload("small", "other", 200.0, 20, 16, RUNS, slow)
    here, there = (baselines.contender(name, one, 0.5) for one in (SMALL, other))
    world = SimulatedJob(SMALL, here.policy, job_of(SMALL, eta_knob=0.5), 0, here.limits(SMALL, 0.5))

    def once(number: int) -> ReplayedRecurrence:
        one = world.submit(number)
        while world.goes_on(one):
            pass
        return ReplayedRecurrence(tuple(one.tries))

    for number in range(1, 21):
        once(number)
    world.move(other, there.limits(other, 0.5))
    if profiled:
        for size in other.sizes:
            world.profile(size)
    return [once(number) for number in range(21, 25)]


def test_a_profiled_start_spares_first_epochs_and_charges_the_profile_to_the_first_trial() -> None:
    who = find_policy("structured")
    plain, profiled = (next(replay(SMALL, who, job_of(SMALL, start=start), 0)) for start in ("default", "profiled"))
    used = [quick_profile(SMALL, size) for size in SMALL.sizes]
    assert sum(one.seconds for one in used) == 3 * (30 + 2 * 5)
    (trial,) = profiled.tries
    best = SMALL.best_epoch(trial.decision.batch_size, 0.5)
    assert trial.outcome.seconds == pytest.approx(
        trial.outcome.epochs * best.seconds + sum(one.seconds for one in used)
    )
    assert profiled.joules == pytest.approx(trial.outcome.epochs * best.joules + sum(one.joules for one in used))
    assert plain.tries[0].decision.batch_size == 16


@pytest.mark.parametrize("name", ["paper", "structured"])
def test_a_job_that_moved_uses_the_other_gpu_and_a_profile_spares_its_first_epochs(name: str) -> None:
    for profiled in (False, True):
        first = moved(name, profiled)[0].tries[-1]
        at = PROFILES[first.decision.batch_size].at(first.limit_watts)
        beyond = first.outcome.seconds - 2 * first.outcome.epochs * at.seconds
        assert (beyond == pytest.approx(0)) is profiled
    assert "lowest of" in moved("paper", profiled=True)[0].tries[0].decision.reason  # it samples at once
    assert "not run yet" in moved("paper", profiled=False)[0].tries[0].decision.reason


def test_without_jit_each_run_of_a_size_tries_another_limit_and_then_the_best() -> None:
    tried: dict[int, list[float]] = {}
    for one in play("paper:no-jit", n=60):
        for t in one.tries:
            tried.setdefault(t.decision.batch_size, []).append(t.limit_watts)
    assert [limits[:2] for limits in tried.values() if len(limits) > 1] == [[200, 100], [200, 100]]
    assert len(tried[8]) > 20
    assert set(tried[8][2:]) == {SMALL.best_epoch(8, 0.5).limit_watts}


def test_a_policy_is_asked_before_every_epoch_unless_it_says_that_it_is_monotone() -> None:
    class Careful:
        """Stops b0 once, after three epochs, though it would go on after four."""

        name, version = "careful", 1

        def __init__(self) -> None:
            self.inner = find_policy("default")

        def __getattr__(self, name: str) -> Any:
            if name == "monotone":
                raise AttributeError(name)
            return getattr(self.inner, name)

        def keep_going(self, state: Any, trial: Trial, epochs: int, cost: float) -> bool:
            return trial.number > 1 or epochs != 3

    tries = next(replay(SMALL, Careful(), job_of(SMALL), 0)).tries
    assert (tries[0].outcome.ending, tries[0].outcome.epochs) == (Ending.STOPPED, 3)
    assert tries[-1].outcome.ending is Ending.CONVERGED


@settings(max_examples=examples(30))
@given(workloads, st.integers(0, 9), st.sampled_from([1.0, 1.3, 2.0]))
def test_asking_only_where_it_matters_changes_nothing(workload: Workload, seed: int, beta: float) -> None:
    class Plain:
        monotone = False

        def __getattr__(self, name: str) -> Any:
            return getattr(find_policy("paper"), name)

    job = job_of(workload, beta_knob=beta)
    quick = list(islice(replay(workload, find_policy("paper"), job, seed), 15))
    assert quick == list(islice(replay(workload, Plain(), job, seed), 15))


# ---------------------------------------------------------------------- concurrency


class Watcher:
    """The paper's policy, with notes of what it was told and asked."""

    monotone = True

    def __init__(self) -> None:
        self.inner = find_policy("paper")
        self.events: list[Event] = []
        self.open_at_ask: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def observe(self, state: Any, event: Event) -> Any:
        self.events.append(event)
        return self.inner.observe(state, event)

    def decide(self, state: Any, rng: Any, ask: Any) -> Any:
        self.open_at_ask.append(len(state.open))
        return self.inner.decide(state, rng, ask)


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_that_many_recurrences_are_in_flight(concurrency: int) -> None:
    watcher = Watcher()
    past = list(islice(replay(SMALL, watcher, job_of(SMALL), 1, concurrency=concurrency), 30))
    assert len(past) == 30
    assert watcher.open_at_ask[:concurrency] == list(range(concurrency))
    assert set(watcher.open_at_ask[concurrency:]) == {concurrency - 1}
    assert [event.sequence for event in watcher.events] == list(range(1, len(watcher.events) + 1))


def test_while_one_explores_others_run_the_best_known() -> None:
    watcher = Watcher()
    list(islice(replay(SMALL, watcher, job_of(SMALL), 1, concurrency=3), 10))
    asked = [e for e in watcher.events if isinstance(e, Trial) and e.ending is Ending.OPEN]
    assert [(t.batch_size, t.decision.phase) for t in asked[:3]] == [
        (16, Phase.PRUNING),
        (16, Phase.CONCURRENT),
        (16, Phase.CONCURRENT),
    ]


def test_recurrences_come_out_in_the_order_they_were_submitted() -> None:
    watcher = Watcher()
    past = list(islice(replay(SMALL, watcher, job_of(SMALL), 3, concurrency=4), 20))
    ended = [e for e in watcher.events if isinstance(e, Trial) and e.ending is Ending.CONVERGED]
    size = {e.ask.recurrence: e.batch_size for e in ended}
    assert [one.choice[0] for one in past] == [size[i + 1] for i in range(20)]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_more_are_submitted_than_asked_for_however_long_one_takes(concurrency: int) -> None:
    slow = {8: PROFILES[8], 16: PowerProfile.of([epoch(200, 1e6, 150)]), 32: PROFILES[32]}
    workload = Workload("slow", "toy", 200.0, 20, 16, RUNS, slow)
    watcher = Watcher()
    past = list(replay(workload, watcher, job_of(workload), 0, concurrency=concurrency, recurrences=12))
    assert len(past) == 12
    assert {e.ask.recurrence for e in watcher.events if isinstance(e, Trial)} == set(range(1, 13))


def test_at_least_one_recurrence_is_in_flight() -> None:
    with pytest.raises(InputError, match="concurrency is 0"):
        next(replay(SMALL, find_policy("paper"), job_of(SMALL), 0, concurrency=0))


# ---------------------------------------------------------------------- baselines


def test_the_luck_of_a_recurrence_does_not_depend_on_the_policy() -> None:
    """Whoever runs 8 first in recurrence t meets the same run."""
    oracle, paper = play("oracle", n=60), play("paper", n=60)
    both = [
        (a.tries[0].outcome.epochs, b.tries[0].outcome.epochs)
        for a, b in zip(oracle, paper, strict=True)
        if b.tries[0].decision.batch_size == 8 and b.tries[0].outcome.ending is Ending.CONVERGED
    ]
    assert len(both) > 20
    assert all(a == b for a, b in both)


def test_runs_are_drawn_uniformly() -> None:
    needed = [one.tries[0].outcome.epochs for one in play("default", n=2000)]
    assert set(needed) == set(RUNS[16])
    assert abs(needed.count(6) - 1000) < 4 * (2000 * 0.25) ** 0.5


def test_default_costs_on_average_what_is_expected_of_it() -> None:
    runs = [simulate(SMALL, "default", seed, recurrences=50) for seed in range(40)]
    used = baselines.default(SMALL)
    assert {choice for run in runs for choice in run.choices} == {(16, 200.0)}
    assert fmean(run.cumulative_energy for run in runs) / 50 == pytest.approx(used.joules, rel=0.02)
    assert fmean(run.cumulative_time for run in runs) / 50 == pytest.approx(used.seconds, rel=0.02)
    gap = SMALL.cost_model(0.5).of(used) - regret.optimum(SMALL, 0.5)
    assert fmean(run.cumulative_regret or 0 for run in runs) / 50 == pytest.approx(gap, rel=0.1)


def test_the_oracle_regrets_nothing_on_average() -> None:
    runs = [simulate(SMALL, "oracle", seed, recurrences=50) for seed in range(40)]
    least = regret.optimum(SMALL, 0.5)
    assert abs(fmean(run.cumulative_regret or 0 for run in runs)) < 0.01 * 50 * least


@given(workloads, st.sampled_from(NAMES[:-1]), st.integers(0, 3))
def test_nobody_beats_the_oracle_by_more_than_luck(workload: Workload, name: str, seed: int) -> None:
    """With one run of each size there is no luck."""
    sure = Workload(
        "sure", "toy", 200.0, 30, workload.default, {b: (r[0] or 30,) for b, r in workload.runs.items()}, PROFILES
    )
    run = simulate(sure, name, seed, recurrences=20)
    assert run.cumulative_regret is not None
    assert run.cumulative_regret >= -1e-6 * run.cumulative_cost


def test_grid_search_tries_every_pair_once_and_keeps_the_cheapest() -> None:
    sure = Workload("sure", "toy", 200.0, 30, 16, {8: (5,), 16: (6,), 32: (9,)}, PROFILES)
    choices = [one.choice for one in play("grid", sure, n=20)]
    assert tuple(choices[:6]) == sure.pairs
    assert set(choices[6:]) == {regret.best_pair(sure, 0.5)}


def test_grid_search_prunes_a_size_that_missed_the_target() -> None:
    never = Workload("never", "toy", 200.0, 30, 16, {8: (None,), 16: (6,), 32: (9,)}, PROFILES)
    past = play("grid", never, n=10)
    assert [t.decision.batch_size for t in past[0].tries] == [8, 16]
    assert [one.choice for one in past[:4]] == [(16, 200), (16, 100), (32, 200), (32, 100)]
    assert past[0].cost > past[0].charged_if_converged().cost == past[0].tries[1].cost
    charged, free = (simulate(never, name, 0, recurrences=10) for name in ("grid", "grid-free"))
    assert charged.choices == free.choices
    failed = never.expected(8, 200.0)
    assert charged.cumulative_energy - free.cumulative_energy == pytest.approx(failed.joules)


def test_where_nothing_converges_all_is_charged_and_no_best_is_defined() -> None:
    hopeless = Workload("hopeless", "toy", 200.0, 3, 16, dict.fromkeys(PROFILES, (None,)), PROFILES)
    for name in NAMES[:-1]:
        past = play(name, hopeless, n=3)
        assert not any(one.converged for one in past)
        assert all(t.outcome.epochs == 3 for one in past for t in one.tries)
        assert all(len(one.tries) == 20 or is_hopeless(hopeless, one, name) for one in past)
        assert not any(is_hopeless(hopeless, ReplayedRecurrence(one.tries[:-1]), name) for one in past)
    assert simulate(hopeless, "paper", 0, recurrences=3).cumulative_regret is None
    with pytest.raises(InputError, match="there is no best choice"):
        baselines.contender("oracle", hopeless, 0.5)


def test_a_contender_is_found_by_name() -> None:
    assert set(NAMES) <= set(baselines.names())
    with pytest.raises(InputError, match=r"unknown policy 'papre'\. Did you mean 'paper'"):
        baselines.contender("papre", SMALL, 0.5)


@pytest.mark.parametrize("name", ["paper", "structured", "default", "grid"])
def test_a_contender_is_made_without_a_look_at_what_is_installed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster makes one for each of its groups, and a look takes milliseconds."""
    monkeypatch.setattr("zeus.policy.registry.installed", None)
    assert baselines.contender(name, SMALL, 0.5).policy.name == name


def test_a_policy_that_names_no_limit_is_not_replayed_as_if_it_did() -> None:
    from zeus.simulate.limit_plans import LimitFromPolicy

    with pytest.raises(InputError, match="names no power limit"):
        next(replay(SMALL, find_policy("paper"), job_of(SMALL), 0, limits=LimitFromPolicy))


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_is_a_function_of_its_seed(name: str) -> None:
    def past(seed: int) -> list[ReplayedRecurrence]:
        return list(play(name, seed=seed, n=25, concurrency=2))

    assert past(3) == past(3)
    assert past(3) != past(4)
