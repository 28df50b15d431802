"""NVIDIA cards through the real binding on a driver that misbehaves as drivers do."""

from __future__ import annotations

import logging
import math
from itertools import pairwise
from pathlib import Path

import pytest

from support.nvml.fake import SONAME, VALUE_TYPES, FakeNvml, build, python
from zeus.device.gpu import Capability, PowerSample
from zeus.device.nvml import mig_parent, nvml_gpus
from zeus.errors import DeviceError, DeviceLost, NoDevice, NotPermitted, Unsupported

EVERYTHING = frozenset(Capability)
OLDER = ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3"]


# --- finding cards


def test_importing_the_module_opens_nothing(fake_nvml: FakeNvml) -> None:
    script = "import sys, zeus.device.nvml; print('pynvml' in sys.modules)"
    assert python(script, fake_nvml.env()) == "False"


def test_all_cards_are_found_in_bus_order(fake_nvml: FakeNvml) -> None:
    fake_nvml.count = 8
    gpus = nvml_gpus()
    assert [gpu.index for gpu in gpus] == list(range(8))
    assert [gpu.spec.uuid for gpu in gpus] == [card.uuid for card in fake_nvml.cards]


def test_a_lost_card_does_not_hide_the_others(fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    fake_nvml.count = 3
    fake_nvml.cards[1].lose()
    with caplog.at_level(logging.WARNING, logger="zeus"):
        assert [gpu.index for gpu in nvml_gpus()] == [0, 2]
    assert "card 1 is skipped" in caplog.text


def test_with_no_card_that_opens_the_reason_is_told(fake_nvml: FakeNvml) -> None:
    for card in fake_nvml.cards:
        card.fail("open", "no_permission")
    with pytest.raises(NoDevice, match=r"2 listed.*Run as root"):
        nvml_gpus()
    fake_nvml.count = 0
    with pytest.raises(NoDevice, match="lists no card"):
        nvml_gpus()


def test_a_driver_that_is_not_loaded_is_no_device(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAKE_NVML_STATE")
    with pytest.raises(NoDevice, match=r"Driver Not Loaded.*nvidia-smi"):
        nvml_gpus()


def test_a_machine_without_the_library_is_no_device(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    (tmp_path / SONAME).write_bytes(b"")
    script = """
from zeus.device.nvml import nvml_gpus
from zeus.errors import NoDevice
try:
    nvml_gpus()
except NoDevice as error:
    print(error)
"""
    said = python(script, fake_nvml.env(LD_LIBRARY_PATH=str(tmp_path)))
    assert "Library Not Found" in said and "ZEUS_GPU=virtual" in said


# --- what a card can do


def test_a_card_that_does_everything_says_so(fake_nvml: FakeNvml) -> None:
    spec = nvml_gpus()[0].spec
    assert spec.capabilities == EVERYTHING
    assert (spec.min_watts, spec.max_watts, spec.default_watts) == (200.0, 700.0, 700.0)
    assert spec.vendor == "nvidia" and not spec.exact


@pytest.mark.parametrize("how", ["not_supported", "no_permission", "invalid_argument", "function_not_found", "unknown"])
@pytest.mark.parametrize(
    "group", ["counter", "samples", "instant", "limits", "persistence", "temperature", "processes"]
)
def test_what_fails_is_missing_and_nothing_else_is(fake_nvml: FakeNvml, group: str, how: str) -> None:
    fake_nvml.cards[0].fail(group, how)
    broken, whole = nvml_gpus()
    assert broken.spec.capabilities == EVERYTHING - {Capability(group)}
    assert whole.spec.capabilities == EVERYTHING


def test_probing_is_done_once(fake_nvml: FakeNvml) -> None:
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    assert card.reads("counter") == 0
    assert gpu.spec is gpu.spec
    assert card.reads("counter") == 1


def test_a_card_lost_while_probed_is_probed_again_when_it_is_back(fake_nvml: FakeNvml) -> None:
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    card.lose()
    with pytest.raises(DeviceLost):
        _ = gpu.spec
    card.heal()
    assert gpu.spec.capabilities == EVERYTHING


def test_without_limits_the_range_is_unknown_and_nothing_can_be_set(fake_nvml: FakeNvml) -> None:
    fake_nvml.cards[0].fail("limits", "not_supported")
    gpu = nvml_gpus()[0]
    assert math.isnan(gpu.spec.min_watts) and math.isnan(gpu.spec.default_watts)
    with pytest.raises(Unsupported, match="no power limit"):
        gpu.set_limit(300)
    assert fake_nvml.calls() == []


def test_a_default_limit_that_is_not_told_is_unknown(fake_nvml: FakeNvml) -> None:
    fake_nvml.cards[0].fail("default_limit", "not_supported")
    spec = nvml_gpus()[0].spec
    assert Capability.LIMITS in spec.capabilities
    assert spec.max_watts == 700 and math.isnan(spec.default_watts)


def test_an_older_driver_lacks_functions_and_still_measures(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    older = build(tmp_path / "older", without=OLDER)
    script = """
from zeus.device.nvml import nvml_gpus
from zeus.errors import Unsupported
gpu = nvml_gpus()[0]
print(*sorted(gpu.spec.capabilities), gpu.power() > 0)
try:
    gpu.energy()
except Unsupported as error:
    print(error)
"""
    said = python(script, fake_nvml.env(LD_LIBRARY_PATH=str(older.parent))).splitlines()
    assert said[0] == "limits persistence power processes samples temperature True"
    assert "newer driver" in said[1]


# --- readings


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("not_supported", Unsupported),
        ("function_not_found", Unsupported),
        ("invalid_argument", Unsupported),
        ("no_permission", NotPermitted),
        ("lost", DeviceLost),
        ("reset_required", DeviceLost),
        ("not_found", DeviceLost),
        ("timeout", DeviceError),
        ("unknown", DeviceError),
    ],
)
def test_each_error_of_the_driver_becomes_one_of_ours(fake_nvml: FakeNvml, how: str, error: type[DeviceError]) -> None:
    gpu = nvml_gpus()[0]
    fake_nvml.cards[0].fail("counter", how)
    with pytest.raises(DeviceError, match=fake_nvml.cards[0].uuid) as raised:
        gpu.energy()
    assert type(raised.value) is error


def test_power_is_instantaneous_where_the_driver_can_and_an_average_elsewhere(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze()
    fake_nvml.cards[1].fail("instant", "not_supported")
    instant, average = nvml_gpus()
    for card in fake_nvml.cards:
        card.power_watts = 624
    fake_nvml.advance(0.1)
    assert instant.power() == 624
    assert average.power() == pytest.approx(124 + 0.1 * 500, abs=0.01)


def test_without_any_power_reading_power_is_unsupported(fake_nvml: FakeNvml) -> None:
    for group in ("power", "instant"):
        fake_nvml.cards[0].fail(group, "not_supported")
    gpu = nvml_gpus()[0]
    assert {Capability.POWER, Capability.INSTANT}.isdisjoint(gpu.spec.capabilities)
    with pytest.raises(Unsupported):
        gpu.power()


def test_a_driver_that_reports_no_power_at_all_does_not_know(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze()
    fake_nvml.cards[0].power_watts = 0
    fake_nvml.advance(10)
    with pytest.raises(Unsupported, match="no running card draws"):
        nvml_gpus()[0].power()


@pytest.mark.parametrize("kind", [kind for kind in VALUE_TYPES if kind != "ushort"])
def test_samples_are_read_whatever_number_type_the_driver_uses(fake_nvml: FakeNvml, kind: str) -> None:
    fake_nvml.freeze()
    fake_nvml.cards[0].sample_type = kind
    samples = nvml_gpus()[0].samples()
    assert [s.watts for s in samples] == pytest.approx([124.0] * 119)
    gaps = [later.stamp - earlier.stamp for earlier, later in pairwise(samples)]
    assert gaps == pytest.approx([0.02] * 118, abs=1e-5)
    assert 0.046 <= fake_nvml.wall() - samples[-1].stamp <= 0.0661


def test_samples_keep_coming_after_the_wall_clock_is_set_back(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze()
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    before = gpu.samples()
    fake_nvml.step_wall(-3600)
    card.power_watts = 500
    fake_nvml.advance(0.5)
    after = gpu.samples()
    assert len(after) == 119
    assert after[0].stamp == pytest.approx(before[25].stamp, abs=1e-5)
    assert after[-1].watts == 500 and after[-1].stamp < before[0].stamp - 3000


@pytest.mark.parametrize("how", ["empty", "not_found"])
def test_an_empty_buffer_is_no_lost_card(fake_nvml: FakeNvml, how: str) -> None:
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    assert isinstance(gpu.samples()[0], PowerSample)
    card.fail("samples", how)
    assert gpu.samples() == []
    assert Capability.SAMPLES not in nvml_gpus()[0].spec.capabilities
    card.fail("open", "not_found")
    card.fail("samples", "not_found")
    with pytest.raises(DeviceLost):
        gpu.samples()


def test_processes_on_the_card_are_listed(fake_nvml: FakeNvml) -> None:
    gpu = nvml_gpus()[0]
    assert gpu.processes() == []
    fake_nvml.cards[0].processes = [4321, 17, 4321]
    assert gpu.processes() == [17, 4321]


def test_speed_ranks_cards_and_is_unknown_where_the_driver_is_silent(fake_nvml: FakeNvml) -> None:
    fake_nvml.count = 3
    fake_nvml.cards[1].cores = 5120
    fake_nvml.cards[2].fail("speed", "not_supported")
    fast, slow, silent = (gpu.speed() for gpu in nvml_gpus())
    assert fast == 16896 * 1980e6 and slow < fast and math.isnan(silent)


def test_a_mig_device_is_traced_to_its_card(fake_nvml: FakeNvml) -> None:
    fake_nvml.cards[1].migs = ["MIG-6b4d0b5e-3f0e-5d0c-9c53-8f1f7a2e0001", "MIG-6b4d0b5e-3f0e-5d0c-9c53-8f1f7a2e0002"]
    assert mig_parent("MIG-6b4d0b5e-3f0e-5d0c-9c53-8f1f7a2e0002") == fake_nvml.cards[1].uuid
    for unknown in ("MIG-6b4d0b5e-3f0e-5d0c-9c53-8f1f7a2e0003", fake_nvml.cards[0].uuid):
        with pytest.raises(NoDevice, match=unknown):
            mig_parent(unknown)


# --- the card goes away


def test_a_card_lost_in_the_middle_says_so_and_may_come_back(fake_nvml: FakeNvml) -> None:
    lost, other = nvml_gpus()
    before = lost.energy()
    assert lost.spec.capabilities
    fake_nvml.cards[0].lose()
    for ask in (lost.energy, lost.power, lost.samples, lost.limit, lambda: lost.set_limit(300)):
        with pytest.raises(DeviceLost, match=r"GPU 0 .*nvidia-smi"):
            ask()
    assert math.isnan(lost.speed())
    assert other.energy() > 0
    fake_nvml.cards[0].heal()
    assert lost.energy() >= before


def test_other_code_that_shuts_the_driver_down_is_survived(fake_nvml: FakeNvml) -> None:
    script = """
import pynvml
from zeus.device.nvml import nvml_gpus
gpu = nvml_gpus()[0]
pynvml.nvmlShutdown()
print(gpu.energy() > 0, gpu.limit(), len(nvml_gpus()))
"""
    assert python(script, fake_nvml.env()) == "True 700.0 2"


def test_a_fork_opens_the_card_for_itself(fake_nvml: FakeNvml) -> None:
    script = """
import os, pynvml
from zeus.device.nvml import nvml_gpus
gpu = nvml_gpus()[1]
gpu.energy()
handle = pynvml.nvmlDeviceGetHandleByIndex(1)
child = os.fork()
if child == 0:
    try:
        pynvml.nvmlDeviceGetPowerUsage(handle)
    except pynvml.NVMLError_InvalidArgument:
        print("stale", flush=True)
    gpu.set_limit(gpu.limit() - 300)
    print(gpu.energy() > 0, gpu.spec.uuid, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(gpu.limit())
"""
    said = python(script, fake_nvml.env())
    assert said.splitlines() == ["stale", f"True {fake_nvml.cards[1].uuid}", "400.0"]
    assert [call.card for call in fake_nvml.calls()] == [1]
