"""The structured policy against the paper's: small versions of what benchmarks/regret.py reports, with all sizes."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.published import TRACES, benchmark, needs_traces
from zeus.simulate.traces.published import load

SEEDS = range(3)
CARDS = ("v100", "a40", "rtx6000")


@pytest.fixture(scope="module")
def regret() -> ModuleType:
    return benchmark("regret")


class TestOnThePublishedTraces:
    pytestmark = needs_traces

    @pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
    def test_its_regret_is_a_third_of_the_papers_at_most(self, regret: ModuleType, eta: float) -> None:
        rows = [
            row
            for card in CARDS
            for workload in load(TRACES, card, smallest=1).values()
            for row in regret.on_traces(workload, ["structured"], eta, range(1), [20, 50], 1)
        ]
        found = regret.summary(rows, "structured")
        assert all(mean < 0.34 for mean in found["mean"].values())
        assert found["first"] < 0.8
        assert found["first_worst"] < 1.15

    def test_unlucky_first_runs_do_not_stick(self, regret: ModuleType) -> None:
        workload = load(TRACES, "rtx6000", smallest=1)["BERT-QA"]
        found = regret.summary(regret.on_traces(workload, ["structured"], 0.5, range(40), [0], 1), "structured")
        assert found["mean"]["full"] < 0.9
        assert found["p95"] < 1.7

    def test_several_in_flight(self, regret: ModuleType) -> None:
        rows = [
            row
            for workload in load(TRACES, "a40", smallest=1).values()
            for row in regret.on_traces(workload, ["structured"], 0.5, SEEDS, [50], 4)
        ]
        assert regret.summary(rows, "structured")["mean"]["50"] < 0.5

    @pytest.mark.parametrize("kind", ["once", "linear", "recurring"])
    def test_after_a_drift_it_is_cheaper_than_the_papers_with_a_window(self, regret: ModuleType, kind: str) -> None:
        rows = [
            row
            for name, workload in load(TRACES, "v100", smallest=1).items()
            if name in ("ShuffleNet-v2", "DeepSpeech2")
            for by in (2, -2)
            for row in regret.under_drift(workload, ["structured"], 0.5, SEEDS, kind, by)
        ]
        assert regret.summary(rows, "structured")["mean"]["after"] < 0.85

    @pytest.mark.parametrize("card", CARDS)
    def test_no_unlucky_run_keeps_it_at_a_poor_size_for_long(self, regret: ModuleType, card: str) -> None:
        pair = load(TRACES, card, smallest=1)["NeuMF"]
        used = [regret.sizes_used(pair, "structured", 0.5, seed, 2 * regret.STUCK) for seed in SEEDS]
        assert all(regret.longest(one, regret.DEARER) <= regret.STUCK for one in used)


def test_in_worlds_of_the_law_of_batch_size_it_is_mostly_near_the_best_after_twenty_recurrences(
    regret: ModuleType,
) -> None:
    worlds = [regret.law_world(number) for number in range(40)]
    assert sum(regret.settles(world, "structured", 0.5, 0) for world in worlds) >= 34


@pytest.mark.parametrize("kind", ["base", "wide", "odd", "noisy", "flat", "steep", "humps", "low", "high", "never"])
def test_in_worlds_drawn_by_chance_it_is_not_much_worse(regret: ModuleType, kind: str) -> None:
    _, sums = regret.in_worlds(kind, ["structured"], 0.5, range(1), 8, 30, 1)
    assert sums["structured"][0] < 1.5


def test_two_sizes_of_which_one_never_gets_there_with_four_in_flight(regret: ModuleType) -> None:
    _, sums = regret.in_worlds("two", ["structured"], 0.5, range(1), 10, 30, 4)
    assert sums["structured"][0] < 1.5
