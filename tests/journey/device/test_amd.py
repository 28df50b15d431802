"""AMD cards from end to end: the real zeus.device.amd and find, over a small amdsmi that stands in for the driver."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import pytest

from support.amd.fake import AMDSMI, MI300X, Machine
from support.programs import run_python
from zeus.device.amd import amd_gpus
from zeus.device.find import find, machine
from zeus.device.gpu import Capability, Gpu
from zeus.errors import (
    DeviceError,
    DeviceLost,
    NoDevice,
    NotPermitted,
    ReadOnly,
    Unsupported,
)


def test_a_card_tells_what_it_can_do_in_si_units(amd: Machine) -> None:
    gpu: Gpu = amd.gpu()
    assert (gpu.spec.name, gpu.spec.vendor) == ("AMD Instinct MI300X", "amd")
    assert gpu.spec.uuid == MI300X["get_gpu_device_uuid"]
    assert (gpu.spec.min_watts, gpu.spec.max_watts, gpu.spec.default_watts) == (250, 750, 750)
    assert gpu.energy() == pytest.approx(30.6)
    assert gpu.power() == 137.0
    assert gpu.limit() == 750.0
    assert gpu.temperature() == 41.0
    assert gpu.processes() == [4711]
    assert gpu.spec.capabilities == {
        Capability.COUNTER,
        Capability.POWER,
        Capability.INSTANT,
        Capability.LIMITS,
        Capability.TEMPERATURE,
        Capability.PROCESSES,
    }


def test_the_older_name_of_the_energy_counter_is_understood(amd: Machine) -> None:
    gpu = amd.gpu(get_energy_count={"power": 2_000_000, "counter_resolution": 15.3})
    assert gpu.energy() == pytest.approx(30.6)


def test_an_average_power_is_not_called_instant(amd: Machine) -> None:
    gpu = amd.gpu(get_power_info={"current_socket_power": "N/A", "average_socket_power": 90})
    assert gpu.power() == 90.0
    assert Capability.POWER in gpu.spec.capabilities and Capability.INSTANT not in gpu.spec.capabilities


@pytest.mark.parametrize(
    ("changes", "reading", "lost"),
    [
        ({"get_energy_count": {"error": 2}}, "energy", Capability.COUNTER),
        ({"get_energy_count": {"energy_accumulator": 0, "counter_resolution": 15.3}}, "energy", Capability.COUNTER),
        (
            {"get_energy_count": {"energy_accumulator": "N/A", "counter_resolution": "N/A"}},
            "energy",
            Capability.COUNTER,
        ),
        ({"get_energy_count": {}}, "energy", Capability.COUNTER),
        ({"get_power_info": {"current_socket_power": "N/A", "average_socket_power": "N/A"}}, "power", Capability.POWER),
        ({"get_power_info": {"current_socket_power": 0, "average_socket_power": 0}}, "power", Capability.POWER),
        ({"get_power_cap_info": {"error": 2}}, "limit", Capability.LIMITS),
        ({"get_power_cap_info": {"power_cap": 0, "max_power_cap": 0}}, "limit", Capability.LIMITS),
        ({"get_temp_metric:HOTSPOT": "N/A"}, "temperature", Capability.TEMPERATURE),
        ({"get_gpu_process_list": [281474]}, "processes", Capability.PROCESSES),
    ],
)
def test_what_a_card_does_not_know_is_unsupported_and_never_zero(
    amd: Machine, changes: dict[str, Any], reading: str, lost: Capability
) -> None:
    gpu = amd.gpu(**changes)
    assert lost not in gpu.spec.capabilities
    with pytest.raises(Unsupported, match="AMD GPU 0"):
        getattr(gpu, reading)()


def test_without_a_limit_the_range_is_unknown_and_nothing_is_set(amd: Machine) -> None:
    gpu = amd.gpu(get_power_cap_info={"error": 2})
    assert math.isnan(gpu.spec.min_watts) and math.isnan(gpu.spec.max_watts) and math.isnan(gpu.spec.default_watts)
    with pytest.raises(Unsupported):
        gpu.set_limit(300)


def test_a_limit_is_set_in_microwatts_and_read_back_in_watts(amd: Machine) -> None:
    gpu = amd.gpu()
    gpu.set_limit(400)
    assert gpu.limit() == 400.0
    assert json.loads(amd.path.read_text())["cards"][0]["get_power_cap_info"]["power_cap"] == 400_000_000


def test_a_driver_that_keeps_another_limit_is_found_out(amd: Machine) -> None:
    with pytest.raises(DeviceError, match="keeps 750 W"):
        amd.gpu(set_power_cap="ignored").set_limit(400)


def test_read_only_refuses_before_the_driver_is_reached(amd: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = amd.gpu(set_power_cap={"error": 10})
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    with pytest.raises(ReadOnly):
        gpu.set_limit(400)
    with pytest.raises(ReadOnly):
        gpu.set_persistence(True)


@pytest.mark.parametrize(("code", "error"), [(10, NotPermitted), (31, DeviceLost), (34, DeviceLost), (7, DeviceError)])
def test_the_drivers_errors_become_ours(amd: Machine, code: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=f"amdsmi_set_power_cap.*{code}"):
        amd.gpu(set_power_cap={"error": code}).set_limit(400)


def test_a_lost_card_is_skipped_and_hides_no_other(amd: Machine) -> None:
    amd.lose()
    assert [gpu.spec.uuid[-1] for gpu in amd_gpus()] == ["2"]


def test_a_card_that_states_no_lowest_limit_gets_a_floor_of_ours_and_says_so(
    amd: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zeus.device.amd")
    caps = {**MI300X["get_power_cap_info"], "min_power_cap": 0}
    assert amd.gpu(get_power_cap_info=caps).spec.min_watts == 250.0
    assert "no lowest power limit" in caplog.text
    low = amd.gpu(get_power_cap_info={**caps, "power_cap": 100_000_000})
    assert low.spec.min_watts == 100.0, "the limit that was found can be put back"


def test_a_card_without_names_can_still_be_told_apart(amd: Machine) -> None:
    bare = amd.gpu(get_gpu_device_uuid={"error": 2}, get_gpu_asic_info={"market_name": "N/A"})
    assert (bare.spec.uuid, bare.spec.name) == ("PCI-0000:0c:00.0", "AMD GPU")


def test_find_gives_my_amd_cards_by_their_place_in_the_mask(amd: Machine) -> None:
    assert {key: gpu.index for key, gpu in find(environ=amd.environ).items()} == {0: 0, 1: 1}
    masked = {**amd.environ, "HIP_VISIBLE_DEVICES": "1"}
    assert {key: gpu.index for key, gpu in find(environ=masked).items()} == {0: 1}
    assert list(find([1, 0], amd.environ)) == [1, 0], "in the order asked for"


def test_a_driver_without_cards_is_no_device_where_amd_was_asked_for(amd: Machine) -> None:
    amd.has()
    with pytest.raises(NoDevice, match="ZEUS_GPU=amd"):
        machine(amd.environ)


def test_a_driver_that_does_not_start_is_no_device(amd: Machine) -> None:
    amd.has(init_error=34)
    with pytest.raises(NoDevice, match=r"amdsmi does not start.*34"):
        amd_gpus()


def test_a_missing_package_is_no_device_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)  # Python's own way to say that there is none
    with pytest.raises(NoDevice, match="pip install"):
        amd_gpus()


def test_a_package_without_its_driver_is_no_device_and_nothing_is_printed(amd: Machine) -> None:
    amd.has(broken=True)
    script = (
        "from zeus.device.amd import amd_gpus\n"
        "from zeus.errors import NoDevice\n"
        "print('before')\n"
        "try: amd_gpus()\n"
        "except NoDevice as why: print(why)\n"
    )
    path = os.pathsep.join([str(AMDSMI), *filter(None, sys.path)])
    done = run_python("-c", script, env={**os.environ, "PYTHONPATH": path})
    before, why = done.stdout.splitlines()
    assert before == "before"
    assert "KeyError" in why and "cannot open shared object" in why, "what was printed is told as the reason"
    assert done.stderr == ""


def test_a_library_that_chatters_is_not_heard(amd: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(amd_gpus()) == 2
    print("heard")
    assert capfd.readouterr().out == "heard\n"
