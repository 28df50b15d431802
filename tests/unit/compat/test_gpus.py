"""The GPUs as the existing package shows them: in milliwatts and millijoules, with limits through the keeper."""

from __future__ import annotations

import pytest

from support.cards import VirtualCards
from zeus.compat.gpus import GPU, EmptyGPUs, ZeusGPUHeterogeneousError, amdsmi_is_available, get_gpus, nvml_is_available
from zeus.device.virtual import VirtualGpu
from zeus.errors import NoDevice, NotPermitted, Unsupported


@pytest.fixture
def cards(virtual_cards: VirtualCards) -> list[VirtualGpu]:
    return virtual_cards("v100x2?clock=virtual")


def test_readings_are_those_of_the_cards(cards: list[VirtualGpu]) -> None:
    gpus = get_gpus(ensure_homogeneous=True)
    cards[0].machine.run([0], seconds=10, watts=200)
    assert len(gpus) == len(gpus.gpus) == 2
    assert gpus.get_name(1) == gpus.get_name(gpu_index=1) == cards[1].spec.name
    assert not hasattr(gpus, "get_nonsense") and not hasattr(gpus, "_need")
    assert gpus.get_power_management_limit_constraints(0) == (100_000, 250_000)
    assert gpus.supports_get_total_energy_consumption(0)
    assert gpus.get_total_energy_consumption(0) == round(1e3 * cards[0].energy())
    assert gpus.get_instant_power_usage(1) == gpus.get_average_power_usage(1) == round(1e3 * cards[1].power())
    assert gpus.get_gpu_temperature(0) == round(cards[0].temperature())
    assert (nvml_is_available(), amdsmi_is_available()) == (False, False)


def test_a_limit_is_set_through_the_keeper_and_put_back(cards: list[VirtualGpu]) -> None:
    gpus = get_gpus()
    gpus.set_power_management_limit(1, 150_000)
    assert [card.limit() for card in cards] == [250, 150]
    assert gpus.get_power_management_limit(1) == 150_000
    gpus.reset_power_management_limit(1)
    gpus.reset_power_management_limit(1)
    assert [card.limit() for card in cards] == [250, 250]


def test_without_permission_nothing_is_set(cards: list[VirtualGpu], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    with pytest.raises(NotPermitted, match="ZEUS_READ_ONLY"):
        get_gpus().set_power_management_limit(0, 150_000)
    assert cards[0].limit() == 250


def test_what_zeus_does_not_do_says_so_in_a_sentence(cards: list[VirtualGpu]) -> None:
    gpus = get_gpus()
    for refused in (
        lambda: gpus.set_gpu_locked_clocks(0, 300, 900),
        lambda: gpus.reset_gpu_locked_clocks(0),
        lambda: gpus.get_supported_graphics_clocks(0),
        lambda: gpus.get_supported_memory_clocks(0),
        lambda: gpus.set_memory_locked_clocks(0, 300, 900),
        lambda: gpus.reset_memory_locked_clocks(0),
    ):
        with pytest.raises(Unsupported, match="frequencies"):
            refused()
    with pytest.raises(Unsupported, match="memory"):
        gpus.get_average_memory_power_usage(0)
    was = gpus.get_persistence_mode(0)
    gpus.set_persistence_mode(0, was)
    with pytest.raises(Unsupported, match="nvidia-smi -pm"):
        gpus.set_persistence_mode(0, not was)


def test_older_names_work_and_warn_and_others_do_not_exist(cards: list[VirtualGpu]) -> None:
    with pytest.warns(DeprecationWarning, match="get_name"):
        assert get_gpus().getName(0) == cards[0].spec.name
    with pytest.warns(DeprecationWarning, match="get_total_energy_consumption"):
        GPU(0).getTotalEnergyConsumption()
    with pytest.raises(AttributeError):
        get_gpus().getNonsense(0)


def test_no_gpu_and_several_models_are_errors(monkeypatch: pytest.MonkeyPatch, cards: list[VirtualGpu]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(NoDevice, match="zeus env"):
        get_gpus()
    assert len(EmptyGPUs()) == 0
    assert issubclass(ZeusGPUHeterogeneousError, Exception)
