"""The profiler on some of the published curves: what it loses, and what it takes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from support.published import TRACES, benchmark, needs_traces

SEEDS = range(1000, 1003)
SOME = {  # steps of 3 ms, of 0.1 s, of 1 s and of more than the 5 s ceiling; flat, steep and crooked curves
    ("v100", "neumf", 1024),
    ("rtx6000", "shufflenetv2", 256),
    ("rtx6000", "bert-sa", 8),
    ("v100", "bert-qa", 16),
    ("a40", "resnet50", 256),
    ("a40", "deepspeech2", 192),
}

pytestmark = needs_traces


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return benchmark("jit_profiling")


@pytest.fixture(scope="module")
def every_pair(bench: ModuleType) -> list[Any]:
    pairs: list[Any] = bench.read_pairs(TRACES)
    return pairs


@pytest.fixture(scope="module")
def some_pairs(every_pair: list[Any]) -> list[Any]:
    return [pair for pair in every_pair if (pair.card, pair.workload, pair.batch_size) in SOME]


def test_the_six_workloads_are_there_on_three_cards(every_pair: list[Any]) -> None:
    assert len({(pair.card, pair.workload) for pair in every_pair}) == 18
    assert len(every_pair) == 163


@pytest.mark.parametrize(
    "selector", ["ZeusCost(0)", "ZeusCost(0.5)", "ZeusCost(1)", "MaxSlowdown(1.05)", "MaxSlowdown(1.2)"]
)
def test_the_choice_is_within_2_percent_and_takes_less_than_every_limit_for_5_seconds(
    bench: ModuleType, some_pairs: list[Any], selector: str
) -> None:
    assert len(some_pairs) == len(SOME)
    found = bench.summary(bench.runs(some_pairs, bench.SELECTORS[selector], SEEDS))
    assert found["loss_mean"] <= 0.003
    assert found["loss_worst"] <= 0.02
    assert found["share_mean"] <= 0.6  # these have more long steps than most


def test_without_noise_the_walk_loses_at_most_half_a_percent_on_any_curve(
    bench: ModuleType, every_pair: list[Any]
) -> None:
    for selector in ("ZeusCost(0)", "ZeusCost(0.5)", "ZeusCost(1)"):
        done = bench.runs(every_pair, bench.SELECTORS[selector], [0], size=0.0)
        assert max(run.loss for run in done) <= 0.005, selector


def test_a_constraint_without_noise_is_never_broken(bench: ModuleType, every_pair: list[Any]) -> None:
    for selector in ("MaxSlowdown(1.05)", "MaxSlowdown(1.2)"):
        assert max(run.loss for run in bench.runs(every_pair, bench.SELECTORS[selector], [0], size=0.0)) == 0


def test_the_same_seed_gives_the_same_run(bench: ModuleType, some_pairs: list[Any]) -> None:
    one, other = (bench.runs(some_pairs, bench.SELECTORS["ZeusCost(0.5)"], [7]) for _ in range(2))
    assert [(run.chosen, run.steps) for run in one] == [(run.chosen, run.steps) for run in other]
