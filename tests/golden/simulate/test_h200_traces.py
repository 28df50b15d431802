"""The traces of the H200 in the repository: complete, made from the epochs beside them, and ready to simulate."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest

from support.paths import ROOT
from zeus.simulate.results import simulate
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

TRACES = ROOT / "benchmarks" / "h200" / "traces"


@pytest.fixture(scope="module")
def workloads() -> dict[str, Workload]:
    return published.load(TRACES, "h200")


def test_every_workload_has_eight_batch_sizes_and_four_runs_of_each(workloads: dict[str, Workload]) -> None:
    assert list(workloads) == ["images", "text", "topics", "clicks"]
    for workload in workloads.values():
        assert len(workload.sizes) == 8
        assert {len(runs) for runs in workload.runs.values()} == {4}


def test_the_traces_are_what_the_epochs_say(workloads: dict[str, Workload]) -> None:
    runs: dict[tuple[str, int], dict[int, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    with (TRACES / "epochs.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            runs[row["task"], int(row["batch_size"])][int(row["seed"])].append(row)
    for name, workload in workloads.items():
        for size in workload.sizes:
            seeds = runs[name, size]
            epochs = [row for seed in seeds.values() for row in seed]
            epoch = workload.profiles[size].at(700)
            assert epoch.seconds == pytest.approx(fmean(float(row["seconds"]) for row in epochs), rel=1e-4)
            assert epoch.joules == pytest.approx(fmean(float(row["joules"]) for row in epochs), rel=1e-4)
            for reached, seed in zip(workload.runs[size], sorted(seeds), strict=True):
                assert len(seeds[seed]) == (workload.max_epochs if reached is None else reached)


def test_a_policy_can_be_simulated_on_them(workloads: dict[str, Workload]) -> None:
    for workload in workloads.values():
        result = simulate(workload, "structured", seed=0, recurrences=20)
        assert result.recurrences == 20
        assert result.cumulative_energy > 0


def test_a_workloads_file_beside_traces_is_used_unless_another_is_given(tmp_path: Path) -> None:
    for path in TRACES.glob("summary_*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    named = (TRACES / "workloads.toml").read_text()
    (tmp_path / "workloads.toml").write_text(named.replace("[images]", "[pictures]"))
    assert "pictures" in published.load(tmp_path, "h200")
    assert "pictures" not in published.load(tmp_path, "h200", settings=published.read(TRACES / "workloads.toml"))


def test_the_figures_of_the_page_are_drawn_from_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plots`")
    script = ROOT / "benchmarks" / "h200" / "figures.py"
    subprocess.run([sys.executable, script, "--out", tmp_path, "--seeds", "1"], check=True, capture_output=True)
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {path.name for path in (ROOT / "benchmarks" / "h200" / "figures").glob("*.png")}
