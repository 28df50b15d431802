"""What profiling adds to ShuffleNet-v2 (§6.5): measured on a virtual card that plays the trace, and computed."""

from __future__ import annotations

import pytest

from support.published import TRACES, benchmark, needs_traces
from zeus.reproduce.figures.overhead import overhead
from zeus.simulate.traces.published import load

pytestmark = needs_traces


def test_the_papers_plan_adds_what_the_trace_lets_expect_and_the_walk_less() -> None:
    bench = benchmark("profiling_overhead")
    (training,) = [one for one in bench.from_traces(TRACES) if one.name == "ShuffleNet-v2"]
    walk, paper = bench.overheads(training, 0.5)
    expected = overhead(load(TRACES, "v100", ["ShuffleNet-v2"])["ShuffleNet-v2"])
    assert (walk.plan, paper.plan, walk.best, paper.best, paper.limits) == ("walk", "paper", 175.0, 175.0, 7)
    assert 35 <= paper.seconds <= 35 + 7 * 0.5  # warm-up, and a last step at each limit
    assert paper.observe_time == pytest.approx(expected.time, abs=0.05)
    assert paper.observe_energy == pytest.approx(expected.energy, abs=0.05)
    assert 0 < walk.observe_time < paper.observe_time / 5
    assert paper.observe_energy < 5 * walk.observe_energy < 0
