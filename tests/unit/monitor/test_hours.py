"""Windows and trainings over several hours: which hour gets which energy, and what it costs."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.clock import VirtualClock
from zeus.device.virtual import VirtualMachine
from zeus.monitor import Measurement, ZeusMonitor
from zeus.monitor.hours import EnergyByHour
from zeus.tariff.rates import HourlyRate, Prices

FIRST = int(VirtualClock.EPOCH // 3600)  # the hour in which virtual clocks begin
LEFT = 3600 - VirtualClock.EPOCH % 3600  # seconds of it that are left
PRICES = Prices(
    HourlyRate({FIRST: 0.2, FIRST + 1: 0.4, FIRST + 2: 0.1}), "EUR", HourlyRate({FIRST: 300, FIRST + 1: 500})
)


def monitored(prices: Prices = PRICES) -> tuple[VirtualMachine, ZeusMonitor]:
    machine = VirtualMachine.in_memory("v100", 2)
    return machine, ZeusMonitor(gpus=dict(enumerate(machine.gpus)), prices=prices)


def test_energy_is_spread_evenly_over_the_hours_and_priced_by_hand() -> None:
    machine, monitor = monitored()
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT, watts=[200.0, 100.0])  # up to the hour
        machine.run([0, 1], seconds=1800, watts=[250.0, 250.0])  # half an hour
    found = window.measurement
    assert found is not None
    total = 300.0 * LEFT + 500.0 * 1800
    first, second = total * LEFT / (LEFT + 1800), total * 1800 / (LEFT + 1800)
    assert found.by_hour(total) == {FIRST: pytest.approx(first), FIRST + 1: pytest.approx(second)}
    assert found.kwh == pytest.approx(total / 3.6e6)
    assert found.money == pytest.approx(first / 3.6e6 * 0.2 + second / 3.6e6 * 0.4)
    assert found.gco2e == pytest.approx(first / 3.6e6 * 300 + second / 3.6e6 * 500)
    assert (found.footprint.currency, found.footprint.by) == ("EUR", "time")


def test_a_training_gives_each_hour_the_energy_of_its_windows() -> None:
    """The windows of a training end at its epochs or earlier, so an hour gets what was drawn in it."""
    machine, monitor = monitored()
    energy = EnergyByHour(PRICES)
    monitor.begin_window("train")
    for seconds, watts in ((LEFT - 300, 250.0), (600, 150.0), (1500, 50.0)):  # the second is half in either hour
        machine.run([0, 1], seconds, watts)
        energy.add(monitor.split_window("train"))
    first, second = 500.0 * (LEFT - 300) + 300.0 * 300, 300.0 * 300 + 100.0 * 1500
    assert energy.joules == {FIRST: pytest.approx(first), FIRST + 1: pytest.approx(second)}
    hourly = energy.hourly(first + second)
    assert hourly is not None and hourly.by == "time"
    assert hourly.footprint.money == pytest.approx(first / 3.6e6 * 0.2 + second / 3.6e6 * 0.4)


def test_an_hour_without_a_value_is_unknown_and_the_sum_covers_a_part() -> None:
    machine, monitor = monitored()
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT + 3600 + 1800, watts=100.0)
    found = window.measurement
    assert found is not None
    total = 200.0 * (LEFT + 5400)
    assert found.money is not None  # all three hours have a price
    assert found.gco2e is None  # the third has no intensity
    assert found.footprint.known_gco2e == pytest.approx(200 * LEFT / 3.6e6 * 300 + 200 * 3600 / 3.6e6 * 500)
    assert found.footprint.gco2e_covers == pytest.approx(1 - 200 * 1800 / total)


def test_a_window_in_one_hour_needs_no_split() -> None:
    machine, monitor = monitored(Prices(0.3, "EUR"))
    with monitor.window("step") as window:
        machine.run([0, 1], seconds=36, watts=100.0)
    found = window.measurement
    assert found is not None
    assert (found.footprint.by, found.money, found.gco2e) == ("", pytest.approx(0.3 * 0.002), None)


def test_without_a_price_energy_comes_to_kilowatt_hours_alone() -> None:
    machine, monitor = monitored(Prices())
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=2 * LEFT, watts=200.0)
    found = window.measurement
    assert found is not None
    assert (found.kwh, found.money, found.gco2e) == (pytest.approx(800 * LEFT / 3.6e6), None, None)


def test_a_card_that_disappears_makes_kilowatt_hours_and_money_unknown_not_0() -> None:
    machine, monitor = monitored()
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT + 60, watts=200.0)
        machine.lose(0)
    found = window.measurement
    assert found is not None
    assert math.isnan(found.kwh)
    assert (found.money, found.gco2e) == (None, None)


def test_a_clock_that_is_set_back_loses_no_energy() -> None:
    machine, monitor = monitored()
    clock = machine.clock
    assert isinstance(clock, VirtualClock)
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT + 60, watts=200.0)
        clock.wall_offset -= 7200
    found = window.measurement
    assert found is not None
    assert sum(found.by_hour(found.total_energy).values()) == pytest.approx(found.total_energy)


@given(st.lists(st.tuples(st.floats(1.0, 7200.0), st.floats(50.0, 250.0)), min_size=1, max_size=6))
def test_the_hours_of_a_window_add_up_to_it(pieces: list[tuple[float, float]]) -> None:
    machine, monitor = monitored()
    with monitor.window("all") as window:
        for seconds, watts in pieces:
            machine.run([0], seconds, watts)
    found = window.measurement
    assert found is not None
    assert sum(found.by_hour(found.total_energy).values()) == pytest.approx(found.total_energy)


def test_a_measurement_that_travels_keeps_what_it_came_to() -> None:
    machine, monitor = monitored()
    with monitor.window("step") as window:
        machine.run([0], seconds=10, watts=200.0)
    found = window.measurement
    assert found is not None
    assert pickle.loads(pickle.dumps(found)).money == found.money
    assert Measurement(time=1.0, gpu_energy={0: 3.6e6}).kwh == 1.0
