"""A replayed cluster: exact clusters, jobs that overlap or do not, and work that is charged in proportion."""

from __future__ import annotations

import zlib
from array import array
from dataclasses import replace
from functools import partial
from itertools import combinations, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from zeus.errors import InputError
from zeus.policy.registry import find_policy
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate import baselines, workers
from zeus.simulate.cluster import GroupUse, Knobs, replay_group, simulate
from zeus.simulate.cluster.match import match, split
from zeus.simulate.cluster.tables import ClusterTrace, Group
from zeus.simulate.replay import job_of, replay
from zeus.simulate.workload import Workload

PROFILES = {
    8: PowerProfile.of([LimitSlice(200, 1, 7, 770), LimitSlice(100, 1, 8.5, 680)]),
    16: PowerProfile.of([LimitSlice(200, 1, 6, 900), LimitSlice(100, 1, 9, 810)]),
    32: PowerProfile.of([LimitSlice(200, 1, 4, 720), LimitSlice(100, 1, 7, 665)]),
}
SMALL = Workload("small", "toy", 200.0, 20, 16, {8: (5, 6), 16: (6, 8), 32: (9, 14)}, PROFILES)
LARGE = Workload("large", "toy", 200.0, 90, 16, {8: (50, 60), 16: (60, 80), 32: (41, 44)}, PROFILES)
HOUR = 3600.0


def group(name: str, starts: list[float], runtimes: list[float]) -> Group:
    return Group(name, array("d", starts), array("d", runtimes))


def regular(name: str, jobs: int, gap: float, runtime: float) -> Group:
    return group(name, [gap * i for i in range(jobs)], [runtime] * jobs)


# ---------------------------------------------------------------------- clusters


def spread(values: list[float], edges: tuple[int, ...]) -> float:
    parts = [values[a:b] for a, b in zip((0, *edges), (*edges, len(values)), strict=True)]
    return sum((value - sum(part) / len(part)) ** 2 for part in parts for value in part)


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=9).map(sorted), st.integers(1, 4))
def test_clusters_are_the_best_that_there_are(values: list[float], clusters: int) -> None:
    clusters = min(clusters, len(values))
    edges = split(values, clusters)
    assert len(edges) == clusters - 1
    assert (0, *edges) == tuple(sorted({0, *edges}))  # none is empty
    best = min(spread(values, cut) for cut in combinations(range(1, len(values)), clusters - 1))
    assert spread(values, edges) <= best + 1e-6 * (1 + best)


def test_groups_that_the_table_matched_stay_with_their_workload() -> None:
    """The longest groups are on the shortest workload, as no K-means would have it."""
    workloads = {"NeuMF": replace(SMALL, name="NeuMF"), "ResNet-50": replace(LARGE, name="ResNet-50")}
    given = [("a", 9.0, "imagenet"), ("b", 500.0, "movielens-1m"), ("c", 11.0, "imagenet"), ("d", 10.0, "squad")]
    trace = ClusterTrace(
        "t", tuple(replace(regular(n, 3, 1, s), dataset=d, ratios=array("d", [1.0] * 3)) for n, s, d in given), 0
    )
    clusters = match(trace, workloads)
    assert [(one.workload.name, [g.name for g in one.groups]) for one in clusters] == [
        ("NeuMF", ["b"]),
        ("ResNet-50", ["a", "c"]),
    ]
    with pytest.raises(
        InputError, match=r"no group of BERT-SA \(dataset sentiment140\)\. The table has groups of imag"
    ):
        match(trace, {"BERT-SA": replace(SMALL, name="BERT-SA")})


def test_the_ratio_of_the_table_is_what_a_job_is_charged() -> None:
    runtimes = regular("g", 4, 10 * HOUR, 40.0)
    scaled = replace(runtimes, dataset="squad", ratios=array("d", [3.0] * 4))
    plain, tripled = (replay_group(SMALL, "default", Knobs(), one, 40.0, seed=0) for one in (runtimes, scaled))
    assert tripled.energy == pytest.approx(3 * plain.energy)
    assert (plain.work, tripled.work) == (4.0, 12.0)


def test_clusters_and_workloads_are_matched_by_runtime() -> None:
    groups = tuple(regular(name, 3, 1, seconds) for name, seconds in (("a", 9.0), ("b", 500.0), ("c", 11.0)))
    short, long = match(ClusterTrace("made up", groups, 0), {"large": LARGE, "small": SMALL})
    assert (short.workload.name, [one.name for one in short.groups], short.mean_runtime) == ("small", ["a", "c"], 10.0)
    assert (long.workload.name, [one.name for one in long.groups], long.jobs) == ("large", ["b"], 3)


def test_too_few_groups_are_refused() -> None:
    groups = (regular("a", 3, 1, 9.0), regular("b", 3, 1, 9.0))
    with pytest.raises(InputError, match=r"2 groups with 1 different mean runtimes; 2 workloads"):
        match(ClusterTrace("made up", groups, 0), {"large": LARGE, "small": SMALL})


# ---------------------------------------------------------------------- a group


@settings(max_examples=examples(20))
@given(st.sampled_from(["paper", "grid", "default"]), st.integers(1, 30), st.sampled_from([0, 3]))
def test_jobs_that_do_not_overlap_are_replayed_like_one_job(name: str, jobs: int, window: int) -> None:
    alone = regular("g", jobs, 1e9, HOUR)
    totals = replay_group(SMALL, name, Knobs(window=window), alone, HOUR, seed=7)
    who = baselines.contender(name, SMALL, 0.5)
    seed = zlib.crc32(b"7:g")
    past = list(islice(replay(SMALL, who.policy, job_of(SMALL, window_size=window), seed, limits=who.limits), jobs))
    assert totals == GroupUse(
        sum(len(one.tries) for one in past),
        0,
        pytest.approx(sum(one.joules for one in past)),
        pytest.approx(sum(one.seconds for one in past)),
        pytest.approx(sum(one.cost for one in past)),
        pytest.approx(jobs),
    )


def test_jobs_submitted_at_once_cannot_learn_from_each_other() -> None:
    certain = Workload("certain", "toy", 200.0, 20, 16, {8: (5,), 16: (6,), 32: (9,)}, PROFILES)
    totals = replay_group(certain, "paper", Knobs(), regular("g", 4, 0.0, HOUR), HOUR, seed=0)
    first, best = certain.profiling_epoch(16), certain.best_epoch(16, 0.5)
    assert totals.energy == pytest.approx(4 * (first.joules + 5 * best.joules))  # the default, and each profiles it


def test_a_job_that_starts_when_another_has_ended_knows_of_it() -> None:
    certain = Workload("certain", "toy", 200.0, 20, 16, {8: (5,), 16: (6,), 32: (9,)}, PROFILES)
    usual = baselines.default(certain).seconds
    first = next(replay(certain, find_policy("paper"), job_of(certain), 0)).seconds

    def energy(gap: float) -> float:
        return replay_group(certain, "paper", Knobs(), regular("g", 2, gap, HOUR), HOUR, seed=0).energy

    end = first / usual * HOUR  # on the trace's time line a Default run takes as long as the traced job
    default, best = certain.profiling_epoch(16), certain.best_epoch(16, 0.5)
    both = default.joules + 5 * best.joules
    assert energy(0.1 * end) == pytest.approx(2 * both)  # the first epoch is not over: both profile it
    assert energy(0.5 * end) == pytest.approx(both + 6 * best.joules)  # profiled, and still running: the default again
    assert energy(0.999 * end) == pytest.approx(both + 6 * best.joules)
    after = certain.profiling_epoch(8).joules + 4 * certain.best_epoch(8, 0.5).joules
    assert energy(1.001 * end) == pytest.approx(both + after)  # over: the next size is explored


@settings(max_examples=examples(20))
@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=12), st.floats(0.1, 10))
def test_work_is_charged_in_proportion(ratios: list[float], factor: float) -> None:
    starts = [i * 0.3 * HOUR for i in range(len(ratios))]
    some = group("g", starts, [ratio * HOUR for ratio in ratios])
    more = group("g", [s * factor for s in starts], [ratio * HOUR * factor for ratio in ratios])
    one, other = (replay_group(SMALL, "paper", Knobs(), each, HOUR, seed=3) for each in (some, more))
    assert other.energy == pytest.approx(one.energy * factor)
    assert other.cost == pytest.approx(one.cost * factor)
    assert one.work == pytest.approx(sum(ratios))


# ---------------------------------------------------------------------- a cluster


def test_a_cluster_is_the_same_with_any_number_of_workers() -> None:
    groups = tuple(regular(f"g{i}", 20 + i, 40.0 * i, 100.0 * (1 + i)) for i in range(6))
    clusters = match(ClusterTrace("made up", groups, 0), {"large": LARGE, "small": SMALL})
    done: list[int] = []
    rows = simulate(clusters, ["paper", "default"], seed=1, progress=done.append)
    assert rows == simulate(clusters, ["paper", "default"], seed=1, workers=partial(workers.spread, processes=2))
    assert sum(done) == 2 * sum(20 + i for i in range(6))
    assert [(row.workload, row.policy) for row in rows] == [
        ("small", "paper"), ("large", "paper"), ("small", "default"), ("large", "default"),
    ]  # fmt: skip
    for row in rows[2:]:
        assert row.tries == row.jobs
        assert row.energy_ratio == pytest.approx(1, abs=0.1)  # the draw against the expectation


def test_a_policy_that_cannot_run_is_refused_before_anything_does() -> None:
    groups = tuple(regular(f"g{i}", 2, 1.0, 100.0 * (1 + i)) for i in range(2))
    clusters = match(ClusterTrace("made up", groups, 0), {"large": LARGE, "small": SMALL})
    done: list[int] = []
    for name in ("papper", "pollux"):
        with pytest.raises(InputError, match=name):
            simulate(clusters, ["paper", name], progress=done.append)
    assert done == []
