"""The driver that stands in for NVIDIA's keeps its own word: hand-computed energy, and the real binding reads it."""

from __future__ import annotations

import pynvml
import pytest

from support.nvml.fake import FakeNvml


@pytest.fixture
def handle(fake_nvml: FakeNvml) -> object:
    fake_nvml.freeze(at=1000.0)
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(0)


def test_pulses_cost_what_the_arithmetic_says(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze(at=1000.0)
    card = fake_nvml.cards[0]
    card.pulses(high=600, low=100, period=0.2, duty=0.25)
    fake_nvml.advance(2.05)
    assert card.power_watts == 100
    # ten whole periods (0.05 s at 600 W, 0.15 s at 100 W), and the high part of the eleventh
    assert card.joules(1000.0, fake_nvml.now()) == pytest.approx(10 * (30 + 15) + 30)
    assert card.joules(1000.02, 1000.10) == pytest.approx(0.03 * 600 + 0.05 * 100)


def test_a_change_of_power_leaves_the_past_alone(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    card.counter_period = 0
    card.power_watts = 200
    before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    fake_nvml.advance(3)
    card.power_watts = 500
    fake_nvml.advance(2)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before == pytest.approx(1_600_000, abs=1)
    watts = [s.sampleValue.uiVal / 1e3 for s in pynvml.nvmlDeviceGetSamples(handle, 0, 0)[1]]
    assert watts[0] == 200 and watts[-1] == 500


def test_many_changes_keep_the_energy(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze(at=1000.0)
    card = fake_nvml.cards[0]
    for watts in range(100, 700):  # more than the schedule's ring holds
        card.power_watts = watts
        fake_nvml.advance(0.5)
    assert card.joules(1299.0, 1300.0) == pytest.approx((698 + 699) / 2)


def test_the_counter_steps_with_its_period_and_can_stand_still(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    first = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    fake_nvml.advance(0.099)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == first
    fake_nvml.advance(0.001)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == pytest.approx(first + 12_400, abs=1)
    card.fail("counter", "stuck")
    fake_nvml.advance(60)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == pytest.approx(first + 12_400, abs=1)


def test_the_buffer_hides_samples_older_than_the_last_seen(fake_nvml: FakeNvml, handle: object) -> None:
    _, whole = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, 0)
    assert len(whole) == 119
    _, newer = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_TOTAL_POWER_SAMPLES, whole[-5].timeStamp)
    assert [s.timeStamp for s in newer] == [s.timeStamp for s in whole[-4:]]


def test_the_binding_reads_what_the_card_is(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    card.migs = ["MIG-a", "MIG-b"]
    assert pynvml.nvmlDeviceGetUUID(handle) == card.uuid
    assert pynvml.nvmlDeviceGetPciInfo(handle).busId == card.bus_id
    assert pynvml.nvmlDeviceGetMigMode(handle) == [1, 1]
    assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 1)) == "MIG-b"
    assert pynvml.nvmlSystemGetDriverVersion() == "999.00"


def test_a_limit_that_is_replaced_unseen_is_written_down(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 700_000
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 300_000)
    card.limit_watts = 400
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 350_000)
    assert card.lost_limits() == [400]


def test_the_log_keeps_the_last_calls(fake_nvml: FakeNvml, handle: object) -> None:
    for watts in range(200, 500):
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, watts * 1000)
    assert [call.value for call in fake_nvml.calls()] == list(range(244, 500))


def test_a_driver_can_talk_nonsense_for_a_while(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    card.garbage("power", 4294967.295, seconds=0.02)
    card.garbage("counter", 1e3, seconds=0.02)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == 1_000_000
    fake_nvml.advance(0.2)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) > 1_000_000
    said = [s.sampleValue.uiVal for s in pynvml.nvmlDeviceGetSamples(handle, 0, 0)[1]]
    assert said.count(0xFFFFFFFF) == 1 and said.count(124_000) == 118


def test_the_counter_can_begin_again_and_step_back(fake_nvml: FakeNvml, handle: object) -> None:
    card = fake_nvml.cards[0]
    card.restart_counter()
    fake_nvml.advance(10)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == pytest.approx(1_240_000, abs=1)
    card.step_counter(-1000)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) == pytest.approx(240_000, abs=1)
