"""A window over several hours: its energy is split by the card's own curve, or by time where the curve has no mark."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.device.clock import VirtualClock
from zeus.device.virtual import VirtualMachine
from zeus.monitor import Measurement, ZeusMonitor
from zeus.tariff.rates import HourlyRate, Prices

FIRST = int(VirtualClock.EPOCH // 3600)  # the hour in which virtual clocks begin
LEFT = 3600 - VirtualClock.EPOCH % 3600  # seconds of it that are left
PRICES = Prices(
    HourlyRate({FIRST: 0.2, FIRST + 1: 0.4, FIRST + 2: 0.1}), "EUR", HourlyRate({FIRST: 300, FIRST + 1: 500})
)


def monitored(prices: Prices = PRICES) -> tuple[VirtualMachine, ZeusMonitor]:
    machine = VirtualMachine.in_memory("v100", 2)
    return machine, ZeusMonitor(gpus=dict(enumerate(machine.gpus)), prices=prices)


def test_energy_is_split_at_full_hours_as_it_was_drawn_and_priced_by_hand() -> None:
    machine, monitor = monitored()
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT, watts=[200.0, 100.0])  # up to the hour
        machine.run([0, 1], seconds=1800, watts=[250.0, 250.0])  # half an hour
    found = window.measurement
    assert found is not None
    first, second = 300.0 * LEFT, 500.0 * 1800
    split = found.by_hour()
    assert split.joules == {FIRST: pytest.approx(first), FIRST + 1: pytest.approx(second)}
    assert split.by == "curve"
    assert found.kwh == pytest.approx((first + second) / 3.6e6)
    assert found.money == pytest.approx(first / 3.6e6 * 0.2 + second / 3.6e6 * 0.4)
    assert found.gco2e == pytest.approx(first / 3.6e6 * 300 + second / 3.6e6 * 500)
    assert found.footprint.currency == "EUR"


def test_the_split_is_of_the_curve_where_power_changes_inside_an_hour() -> None:
    machine, monitor = monitored()
    with monitor.window("train") as window:
        machine.run([0], seconds=LEFT - 600, watts=250.0)
        machine.run([0], seconds=1200, watts=50.0)  # ten minutes on each side of the hour
    found = window.measurement
    assert found is not None
    idle = machine.card.idle_watts  # the other card
    wanted = {FIRST: 250.0 * (LEFT - 600) + 50.0 * 600 + idle * LEFT, FIRST + 1: (50.0 + idle) * 600}
    assert found.by_hour().joules == {hour: pytest.approx(joules) for hour, joules in wanted.items()}


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
    assert (found.by_hour().by, found.money, found.gco2e) == ("", pytest.approx(0.3 * 0.002), None)


def test_without_a_price_energy_is_split_by_time_and_comes_to_kilowatt_hours_alone() -> None:
    machine, monitor = monitored(Prices())
    with monitor.window("train") as window:
        machine.run([0, 1], seconds=LEFT, watts=200.0)
        machine.run([0, 1], seconds=LEFT, watts=100.0)
    found = window.measurement
    assert found is not None
    split = found.by_hour()
    assert split.by == "time"
    assert list(split.joules.values()) == [pytest.approx(found.total_energy / 2)] * 2
    assert (found.kwh, found.money, found.gco2e) == (pytest.approx(600 * LEFT / 3.6e6), None, None)


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
    assert sum(found.by_hour().joules.values()) == pytest.approx(found.total_energy)


@given(st.lists(st.tuples(st.floats(1.0, 7200.0), st.floats(50.0, 250.0)), min_size=1, max_size=6))
def test_the_hours_of_a_window_add_up_to_it(pieces: list[tuple[float, float]]) -> None:
    machine, monitor = monitored()
    with monitor.window("all") as window:
        for seconds, watts in pieces:
            machine.run([0], seconds, watts)
    found = window.measurement
    assert found is not None
    assert sum(found.by_hour().joules.values()) == pytest.approx(found.total_energy)


def test_a_measurement_that_travels_keeps_what_it_came_to() -> None:
    machine, monitor = monitored()
    with monitor.window("step") as window:
        machine.run([0], seconds=10, watts=200.0)
    found = window.measurement
    assert found is not None
    assert pickle.loads(pickle.dumps(found)).money == found.money
    assert Measurement(time=1.0, gpu_energy={0: 3.6e6}).kwh == 1.0
