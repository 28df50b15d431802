"""The goodput tuner: its formula against the published runs, its choices, and what a replay of it is charged."""

from __future__ import annotations

import csv
from itertools import islice, pairwise
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.paths import ROOT
from support.published import TRACES
from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate import pollux
from zeus.simulate.pollux import NoiseScale
from zeus.simulate.results import simulate
from zeus.simulate.traces import published
from zeus.simulate.workload import Workload

RUNS = pollux.published(ROOT)
needs_runs = [
    pytest.mark.data,
    pytest.mark.skipif(not RUNS.is_dir(), reason=f"the Pollux runs are not in {RUNS}; set ZEUS_DATA"),
]
WATTS = (200.0, 100.0)


def workload(seconds: dict[int, float], epochs: dict[int, int | None]) -> Workload:
    profiles = {
        size: PowerProfile.of(LimitSlice(watts, 1, each * 200 / watts, each * 150) for watts in WATTS)
        for size, each in seconds.items()
    }
    return Workload("DeepSpeech2", "toy", 200.0, 50, min(seconds), {b: (n,) for b, n in epochs.items()}, profiles)


sizes = st.lists(st.integers(1, 512), min_size=1, max_size=6, unique=True).flatmap(
    lambda found: st.fixed_dictionaries({size: st.floats(1, 1e3) for size in found})
)


@given(sizes, st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 600))
def test_the_noisier_the_gradient_the_larger_the_batch(
    seconds: dict[int, float], one: float, other: float, base: int
) -> None:
    work = workload(seconds, dict.fromkeys(seconds, 3))
    calm, noisy = (pollux.choose(work, NoiseScale(base, ((1.0, phi),)), 0.0) for phi in sorted((one, other)))
    assert calm <= noisy
    assert calm >= min(base, max(seconds))  # never below where training starts, if there is anything above it


@given(sizes, st.floats(0, 1e6))
def test_no_size_has_a_greater_goodput(seconds: dict[int, float], phi: float) -> None:
    work = workload(seconds, dict.fromkeys(seconds, 3))
    goodput = {size: (1 / each) * (phi + 1) / (phi + size) for size, each in seconds.items()}
    chosen = pollux.choose(work, NoiseScale(1, ((1.0, phi),)), 0.0)
    assert goodput[chosen] >= max(goodput.values()) * (1 - 1e-9)


def test_the_batch_grows_on_the_way_and_each_epoch_covers_its_share() -> None:
    work = workload({8: 10.0, 16: 8.0}, {8: 4, 16: 8})
    growing = NoiseScale(8, ((0.0, 1.0), (0.5, 1e6)))
    (one,) = next(pollux.replay(work, growing, seed=0)).tries
    # two epochs of 8 are half of the way; then 16 pays, of which four are the other half
    assert (one.decision.batch_size, one.outcome.epochs, one.limit_watts) == (16, 6, 200.0)
    assert one.decision.reason.endswith("8 x 2, 16 x 4")
    assert one.outcome.seconds == pytest.approx(2 * 10 + 4 * 8)
    assert one.outcome.joules == pytest.approx(150 * one.outcome.seconds)


def test_a_size_that_misses_the_target_gets_nowhere() -> None:
    work = workload({8: 10.0}, {8: None})
    one = next(pollux.replay(work, NoiseScale(8, ((1.0, 1.0),)), seed=0))
    assert not one.converged
    assert one.tries[0].outcome.epochs == work.max_epochs


def test_several_gpus_share_the_work_and_wait_for_each_other(tmp_path: Path) -> None:
    (tmp_path / "deepspeech2").mkdir()
    table = "placement,local_bsz,step_time,sync_time\n1,8,2,0\n1,16,2,0\n4,8,3,1\n4,16,2,0\n"
    (tmp_path / "deepspeech2" / "placements.csv").write_text(table)
    work = workload({8: 10.0, 16: 8.0, 32: 7.0, 64: 6.0}, {8: 4, 16: 5, 32: 6, 64: 7})
    four = pollux.on_gpus(work, 4, tmp_path)
    assert (four.sizes, four.max_watts, four.gpu, four.runs[32]) == ((32, 64), 800.0, "4 x toy", (6,))
    at_32, at_64 = (four.profiles[size].slices[0] for size in (32, 64))
    assert (at_32.limit_watts, at_32.seconds) == (800.0, pytest.approx(10.0 / 4 * 3 / 2))
    assert at_64.joules == pytest.approx(8.0 * 150)  # no waiting: the energy of one GPU, in a quarter of the time
    with pytest.raises(InputError, match="was measured on both 1 and 3 GPUs"):
        pollux.on_gpus(work, 3, tmp_path)


@pytest.mark.parametrize("name", ["BERT-SA", "ShuffleNet-v2"])
def test_a_workload_that_no_published_run_is_near_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"pollux on {name}: no published Pollux job is similar"):
        pollux.noise_scale(name)


def test_missing_runs_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="set ZEUS_DATA to the folder that holds pollux_osdi21/traces"):
        pollux.noise_scale("NeuMF", tmp_path)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1,2,90,x,1", "line 2: grad_sqr is 'x'"),
        ("1,2,90,0,1", "line 2: progress and grad_sqr"),
        ("1,2", "line 2: 2 cells"),
    ],
)
def test_a_fault_in_a_run_is_named_with_its_line(tmp_path: Path, line: str, fault: str) -> None:
    (tmp_path / "deepspeech2").mkdir()
    path = tmp_path / "deepspeech2" / "validation-20.csv"
    path.write_text(f"progress,iteration,metric,grad_sqr,grad_var\n{line}\n")
    with pytest.raises(InputError, match=fault):
        pollux.noise_scale("DeepSpeech2", tmp_path)


class TestThePublishedRuns:
    pytestmark = needs_runs

    @pytest.mark.parametrize(
        ("folder", "base"), [("deepspeech2", 20), ("bert", 12), ("imagenet", 200), ("ncf", 256), ("cifar10", 128)]
    )
    def test_efficiency_is_the_progress_that_they_measured(self, folder: str, base: int) -> None:
        """Progress counts steps of b0: one step of b is worth b/b0 of them, times the efficiency of b."""
        for path in (RUNS / folder).glob("validation-*.csv"):
            size = int(path.stem.removeprefix("validation-"))
            rows = [[float(cell) for cell in row] for row in list(csv.reader(path.read_text().splitlines()))[1:]]
            errors = []
            for before, after in pairwise(rows):
                if after[3] > 0:  # at the very end of some runs the gradient is lost in the noise
                    phi = base * after[4] / after[3]
                    worth = size / base * (phi + base) / (phi + size)
                    errors.append(abs((after[0] - before[0]) / (after[1] - before[1]) / worth - 1))
            assert median(errors) < 0.05, path

    def test_the_noise_scale_grows_on_the_way(self) -> None:
        for name in pollux.MODELS:
            noise = pollux.noise_scale(name, RUNS)
            assert noise.at(1.0) >= noise.at(0.0) > 0
            assert noise.points[-1][0] == 1.0

    @pytest.mark.skipif(not TRACES.is_dir(), reason=f"the published traces are not in {TRACES}")
    def test_it_is_a_policy_of_simulate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ZEUS_DATA", str(TRACES.parent))
        work = published.load(TRACES, "v100", ["NeuMF"])["NeuMF"]
        run = simulate(work, "pollux", 3, recurrences=7)
        past = list(islice(pollux.replay(work, pollux.noise_scale("NeuMF"), 3), 7))
        assert run.choices == tuple(one.choice for one in past)
        assert run.cumulative_energy == pytest.approx(sum(one.joules for one in past))
