"""What every implementation of the `Gpu` port promises; each is listed once, in IMPLEMENTATIONS."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from zeus.device.amd import amd_gpus
from zeus.device.gpu import Capability, Gpu
from zeus.device.nvml import nvml_gpus
from zeus.device.virtual import VirtualMachine
from zeus.errors import DeviceLost, InputError, ReadOnly, Unsupported


@dataclass
class Rig:
    """One card, a way to let time pass, a way to lose the card, and what it was set to, as seen from outside."""

    gpu: Gpu
    wait: Callable[[float], None]
    lose: Callable[[], None]


def nvml_rig(request: pytest.FixtureRequest) -> Rig:
    fake = request.getfixturevalue("fake_nvml")
    fake.freeze()
    return Rig(nvml_gpus()[0], fake.advance, fake.cards[0].lose)


def virtual_rig(_: pytest.FixtureRequest) -> Rig:
    machine = VirtualMachine.in_memory("v100")
    return Rig(machine.gpus[0], machine.clock.sleep, lambda: machine.lose(0))


def amd_rig(request: pytest.FixtureRequest) -> Rig:
    machine = request.getfixturevalue("amd")
    return Rig(amd_gpus()[0], machine.wait, machine.lose)


IMPLEMENTATIONS: dict[str, Callable[[pytest.FixtureRequest], Rig]] = {
    "nvml": nvml_rig,
    "amd": amd_rig,
    "virtual": virtual_rig,
}


@pytest.fixture(params=IMPLEMENTATIONS)
def rig(request: pytest.FixtureRequest) -> Rig:
    return IMPLEMENTATIONS[request.param](request)


@pytest.fixture
def gpu(rig: Rig) -> Gpu:
    return rig.gpu


READINGS: dict[Capability, Callable[[Gpu], object]] = {
    Capability.COUNTER: lambda gpu: gpu.energy(),
    Capability.SAMPLES: lambda gpu: gpu.samples(),
    Capability.POWER: lambda gpu: gpu.power(),
    Capability.LIMITS: lambda gpu: gpu.limit(),
    Capability.PERSISTENCE: lambda gpu: gpu.persistence(),
    Capability.TEMPERATURE: lambda gpu: gpu.temperature(),
    Capability.PROCESSES: lambda gpu: gpu.processes(),
}


@pytest.mark.parametrize("capability", READINGS)
def test_a_reading_works_exactly_where_the_card_claims_it(gpu: Gpu, capability: Capability) -> None:
    if capability in gpu.spec.capabilities:
        READINGS[capability](gpu)
    else:
        with pytest.raises(Unsupported):
            READINGS[capability](gpu)


@pytest.mark.parametrize("capability", READINGS)
def test_a_lost_card_says_so_whatever_it_is_asked(rig: Rig, capability: Capability) -> None:
    assert rig.gpu.spec.capabilities
    rig.lose()
    with pytest.raises(DeviceLost if capability in rig.gpu.spec.capabilities else (DeviceLost, Unsupported)):
        READINGS[capability](rig.gpu)


def test_a_lost_card_cannot_be_set(rig: Rig) -> None:
    watts = rig.gpu.spec.min_watts
    rig.lose()
    with pytest.raises(DeviceLost):
        rig.gpu.set_limit(watts)


def test_the_spec_names_the_card_and_its_range(gpu: Gpu) -> None:
    spec = gpu.spec
    assert spec.uuid and spec.name and spec.vendor
    assert gpu.index >= 0
    if Capability.LIMITS in spec.capabilities:
        assert 0 < spec.min_watts <= spec.default_watts <= spec.max_watts
    else:
        assert all(map(math.isnan, (spec.min_watts, spec.default_watts, spec.max_watts)))
    assert gpu.spec == spec


def test_readings_are_floats_in_si_units(gpu: Gpu) -> None:
    for reading in (gpu.energy(), gpu.power(), gpu.limit(), gpu.temperature()):
        assert isinstance(reading, float)
    assert 1 < gpu.power() < 2_000
    assert gpu.spec.min_watts <= gpu.limit() <= gpu.spec.max_watts
    assert 0 < gpu.temperature() < 120
    if Capability.PERSISTENCE in gpu.spec.capabilities:
        assert isinstance(gpu.persistence(), bool)


def test_energy_never_decreases_and_grows_by_the_power_drawn(rig: Rig) -> None:
    readings = [rig.gpu.energy()]
    for seconds in (0.001, 0.05, 0.3, 2.0, 10.0):
        rig.wait(seconds)
        readings.append(rig.gpu.energy())
    assert readings == sorted(readings)
    assert readings[-1] - readings[0] == pytest.approx(rig.gpu.power() * 12.351, rel=0.02)


def test_samples_come_oldest_first_and_keep_coming(rig: Rig) -> None:
    if Capability.SAMPLES not in rig.gpu.spec.capabilities:
        return
    before = rig.gpu.samples()
    assert [s.stamp for s in before] == sorted(s.stamp for s in before)
    assert all(s.watts > 0 for s in before)
    rig.wait(1.0)
    assert rig.gpu.samples()[-1].stamp - before[-1].stamp == pytest.approx(1.0, abs=0.1)


def test_a_limit_that_was_set_is_the_limit_in_force(gpu: Gpu) -> None:
    low, high = gpu.spec.min_watts, gpu.spec.max_watts
    for watts in (low, high, (low + high) / 2, low + 1 / 3):
        gpu.set_limit(watts)
        assert gpu.limit() == pytest.approx(watts, abs=0.5)  # some drivers keep whole watts


@pytest.mark.parametrize("off", [-1.0, 1.0, -math.inf, math.inf, math.nan])
def test_a_limit_outside_the_range_is_refused_and_changes_nothing(gpu: Gpu, off: float) -> None:
    found = gpu.limit()
    with pytest.raises(InputError, match="outside its range"):
        gpu.set_limit((gpu.spec.min_watts if off < 0 else gpu.spec.max_watts) + off)
    assert gpu.limit() == found


def test_persistence_that_was_set_is_in_force(gpu: Gpu) -> None:
    if Capability.PERSISTENCE not in gpu.spec.capabilities:
        with pytest.raises(Unsupported):
            gpu.set_persistence(True)
        return
    for on in (True, False, True):
        gpu.set_persistence(on)
        assert gpu.persistence() is on


def test_read_only_refuses_every_setter_and_changes_nothing(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = gpu.limit()
    persistence = gpu.persistence() if Capability.PERSISTENCE in gpu.spec.capabilities else None
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    with pytest.raises(ReadOnly):
        gpu.set_limit(gpu.spec.min_watts)
    with pytest.raises(ReadOnly):
        gpu.set_persistence(not persistence)
    assert gpu.limit() == limit
    assert persistence is None or gpu.persistence() == persistence
