"""A command that reports no steps keeps the virtual card busy while Zeus watches it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.launch_place import Place, tries
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.virtual import VirtualGpu, presets, step, virtual_gpus
from zeus.device.virtual.physics import operate
from zeus.device.virtual.watched import MEASURED_BATCH_SIZE, WatchedLoad

CARD = presets.card("v100")
PLAIN = "import time\nfor epoch in range(1, 4): time.sleep(0.2); print(f'acc={0.3 * epoch}')\n"


def modelled(batch_size: int, limit: float = 250.0, load: str = "compute-bound") -> float:
    return operate(CARD, presets.load("v100", load), batch_size, limit).watts


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VirtualGpu:
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    return virtual_gpus("v100?speed=10")[0]


def test_the_card_draws_what_the_model_says_at_the_limit_in_force_and_idles_afterwards(gpu: VirtualGpu) -> None:
    with WatchedLoad([gpu], 32) as load:
        begin, before = gpu.clock.now(), gpu.energy()
        gpu.clock.sleep(5)  # longer than one renewal lasts
        end, after = gpu.clock.now(), gpu.energy()
        assert (after - before) / (end - begin) == pytest.approx(modelled(32), rel=0.02)
        gpu.set_limit(125)
        load.renew()
        assert gpu.power() == modelled(32, 125) < modelled(32)
        gpu.set_limit(150)
        eventually(lambda: gpu.power() == modelled(32, 150))  # also if nobody says so
    assert gpu.power() == CARD.idle_watts


def test_a_reported_step_ends_the_modelled_load(gpu: VirtualGpu) -> None:
    with WatchedLoad([gpu], 32):
        step([gpu], 64)
        eventually(lambda: gpu.power() == CARD.idle_watts)
        before, begin = gpu.energy(), gpu.clock.now()
        gpu.clock.sleep(5)
        assert gpu.energy() - before == pytest.approx(CARD.idle_watts * (gpu.clock.now() - begin), rel=0.05)


@pytest.mark.parametrize("text", ["v100?speed=10&watched=idle", "v100?clock=virtual"])
def test_it_can_be_turned_off_and_a_virtual_clock_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    gpu = virtual_gpus(text)[0]
    with WatchedLoad([gpu], 32):
        assert gpu.power() == CARD.idle_watts


def test_the_load_does_not_outlive_a_watcher_that_is_killed(gpu: VirtualGpu) -> None:
    code = (
        "import os\nfrom zeus.device.virtual import virtual_gpus\nfrom zeus.device.virtual.watched import WatchedLoad\n"
        "WatchedLoad(virtual_gpus('v100?speed=10'), 32).__enter__()\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=PATIENCE_SECONDS, check=True)
    assert gpu.energy() > 0
    eventually(lambda: gpu.power() == CARD.idle_watts)


def test_a_measured_command_says_that_its_power_is_modelled(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    command = [sys.executable, "-m", "zeus.cli", "measure", "--output", str(output), "--", "sleep", "0.3"]
    env = {**Place(tmp_path).env, "ZEUS_GPU": "virtual:v100?load=resnet50"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True)
    report = json.loads(output.read_text())
    expected = modelled(MEASURED_BATCH_SIZE, load="resnet50")
    assert report["joules"] / report["seconds"] == pytest.approx(expected, rel=0.05)
    assert report["modelled_load"] == "resnet50"
    assert done.stderr.count("the power of the command is modelled (resnet50, batch size 64)") == 1


def test_an_unmodified_script_runs_under_the_modelled_load_of_its_batch_size(tmp_path: Path) -> None:
    place = Place(tmp_path, "virtual:v100")
    (tmp_path / "train.py").write_text(PLAIN)
    place.job("metric alone", mode="off", batch_sizes=[16], target_metric=0.85)
    done = place.run("--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the power of the command is modelled (compute-bound, batch size of the trial)") == 1
    (only,) = tries(json.loads(done.stdout))
    assert only["joules"] / only["seconds"] == pytest.approx(modelled(16), rel=0.05)
