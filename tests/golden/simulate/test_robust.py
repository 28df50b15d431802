"""Knobs at their ends, on the published traces and on virtual GPUs: no crash, no NaN, no warning.

benchmarks/robust.py does this for every b0 and every combination.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest

from support.published import TRACES, benchmark, needs_every_card, needs_traces
from zeus.simulate import virtual
from zeus.simulate.baselines import POLLUX, names
from zeus.simulate.results import ReplayResult, simulate
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

robust = benchmark("robust")
ENDS = list(product((1.0, 5.0), (0.0, 1.0), (0, 1, 10)))


def ends_well(workload: Workload, policy: str, concurrency: int) -> None:
    for i, (beta, eta, window) in enumerate(ENDS):
        b0 = workload.sizes[i % len(workload.sizes)]
        run = simulate(
            replace(workload, default=b0),
            policy,
            seed=i,
            beta=beta,
            eta=eta,
            window=window,
            recurrences=6,
            concurrency=concurrency,
        )
        assert robust.sound(run), run


def regret(run: ReplayResult) -> float:
    assert run.cumulative_regret is not None, f"the regret on {run.workload} is not known"
    return run.cumulative_regret


@pytest.mark.parametrize("policy", [name for name in names() if name != POLLUX])  # which needs data of its own
def test_virtual_workloads_are_replayed_whatever_the_knobs(policy: str) -> None:
    for workload in virtual.load("h100").values():
        ends_well(workload, policy, concurrency=2)


class TestTraces:
    pytestmark = needs_traces

    @needs_every_card
    @pytest.mark.parametrize("gpu", ["v100", "a40", "rtx6000", "p100"])
    def test_traced_workloads_are_replayed_whatever_the_knobs(self, gpu: str) -> None:
        for workload in published.load(TRACES, gpu).values():
            ends_well(workload, "paper", concurrency=1)

    @pytest.mark.parametrize("gpu", ["v100", "a40", "rtx6000"])  # on the P100, ResNet-50 has only two sizes to search
    def test_zeus_regrets_less_than_grid_search(self, gpu: str) -> None:
        for workload in published.load(TRACES, gpu).values():
            paper, grid, free = (
                sum(regret(simulate(workload, name, seed)) for seed in range(2))
                for name in ("paper", "grid", "grid-free")
            )
            assert paper < free <= grid, workload.name


def test_the_benchmark_counts_what_goes_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    robust.check(virtual.load("v100")["BERT-SA"], "no such policy", 3, 1, seen)
    assert seen == {"crashes and warnings": 100}
    assert "no such policy" in capsys.readouterr().out
