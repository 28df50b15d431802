"""`[cost] include = ["gpu", "cpu"]` under `zeus run`: an unmodified script, a script with a loader, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place, tries
from zeus.cost import CostModel
from zeus.device.virtual import presets
from zeus.device.virtual.physics import operate

pytestmark = pytest.mark.usefixtures("warm_torch")

CPU_WATTS, DRAM_WATTS = 150.0, 20.0
CPU = f"cpu={CPU_WATTS:g}&dram={DRAM_WATTS:g}"
NODE = f"virtual:v100?speed=40&watched=idle&{CPU}"
BOTH = '[cost]\ninclude = ["gpu", "cpu"]\n'
STEPS, EPOCHS, SIZE = 40, 4, 16
LOADER = """
import torch
from zeus import ZeusDataLoader
data = torch.utils.data.TensorDataset(torch.zeros(640, 1))
loader = ZeusDataLoader(data, 16, max_epochs=6, target_metric=0.9, shuffle=False)
for epoch in loader.epochs():
    for _ in loader:
        pass
    loader.report_metric(0.9 * (epoch + 1) / 4)
"""


def by_hand(seconds: float, include_cpu: bool) -> float:
    """Joules of a run at 250 W: the GPU works for all steps and idles in between, the CPU draws the same throughout."""
    card = presets.card("v100")
    each = operate(card, presets.load("v100"), SIZE, 250.0)
    busy = STEPS * EPOCHS * each.seconds
    cpu = CPU_WATTS + DRAM_WATTS if include_cpu else 0.0
    return busy * each.watts + (seconds - busy) * card.idle_watts + seconds * cpu


@pytest.fixture
def place(tmp_path: Path) -> Place:
    here = Place(tmp_path, NODE)
    here.script(epochs=EPOCHS)  # it ends at the target by itself, so all that it did is counted
    return here


def check(told: dict[str, Any], include_cpu: bool) -> None:
    [one] = tries(told)
    joules = by_hand(one["seconds"], include_cpu)
    assert told["include"] == one["include"] == (["gpu", "cpu"] if include_cpu else ["gpu"])
    assert (one["ending"], one["epochs"]) == ("converged", EPOCHS)
    assert one["joules"] == pytest.approx(joules, rel=0.01)
    assert one["cost"] == pytest.approx(CostModel(0.5, 250.0).cost(one["joules"], one["seconds"]))
    assert told["default"]["joules"] == pytest.approx(joules, rel=0.01)
    assert told["saving"]["joules"] == pytest.approx(0.0, abs=1e-6 * joules)


@pytest.mark.parametrize("include_cpu", [False, True])
def test_an_unmodified_script_is_charged_for_what_its_job_counts(place: Place, include_cpu: bool) -> None:
    place.job(power_limits=[250], more=BOTH if include_cpu else "")
    check(place.report(), include_cpu)


@pytest.mark.parametrize("include_cpu", [False, True])
def test_a_script_with_a_loader_is_charged_for_what_its_job_counts(place: Place, include_cpu: bool) -> None:
    pytest.importorskip("torch")
    (place.folder / "train.py").write_text(LOADER)
    place.job(power_limits=[250], more=BOTH if include_cpu else "", metrics="")
    told = place.report(ZEUS_GPU=f"virtual:v100?clock=virtual&{CPU}")
    check(told, include_cpu)
    busy = STEPS * EPOCHS * operate(presets.card("v100"), presets.load("v100"), SIZE, 250.0).seconds
    assert tries(told)[0]["seconds"] == pytest.approx(busy), "on a virtual clock nothing idles"
    assert (" of GPU and CPU" in _log(place)) == include_cpu


def _log(place: Place) -> str:
    return "".join(path.read_text() for path in place.folder.glob("**/*.log"))


def test_without_a_counter_the_run_is_refused_before_anything_is_registered(place: Place) -> None:
    place.job(more=BOTH)
    done = place.run(ZEUS_GPU="virtual:v100?clock=virtual")
    assert done.returncode == 2
    assert "the cost includes the CPU, but its energy cannot be measured" in done.stderr
    assert "cpu=" in done.stderr
    assert not (place.folder / "pid").exists(), "the script must not have started"
    assert place.store().names().page == []


def test_another_include_needs_revise(place: Place) -> None:
    place.job(power_limits=[250])
    place.report()
    place.job(power_limits=[250], more=BOTH)
    refused = place.run()
    assert refused.returncode == 2
    assert "its costs count the energy of GPU, and this counts GPU and CPU" in refused.stderr
    assert place.store().count("toy") == 1
    told = place.report("--revise")
    [one] = tries(told)
    assert one["joules"] == pytest.approx(by_hand(one["seconds"], include_cpu=True), rel=0.01)
    assert place.store().job("toy").spec.include == ("gpu", "cpu")
