"""Power over time: what is asked of a long past."""

import math
from array import array
from typing import Any

import pytest

from zeus.device.virtual import VirtualMachine
from zeus.monitor.timeline import PowerMonitor

READINGS = 100_000


class Counted(array):  # type: ignore[type-arg]
    """Moments of readings, and how many of them were looked at."""

    count = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        self.count += len(found) if isinstance(index, slice) else 1
        return found


@pytest.fixture
def long_past() -> tuple[PowerMonitor, VirtualMachine]:
    """A monitor with many readings: they swing by 100 W around 200 W, ten times a second."""
    machine = VirtualMachine.in_memory("v100")
    monitor = PowerMonitor(gpus={0: machine.gpus[0]}, update_period=1e9)
    series = monitor._recorder._readings[0]
    begin = machine.clock.now()
    for k in range(1, READINGS + 1):
        series.append(begin + k / 10, 200 + 100 * math.sin(k / 3))
    machine.clock.sleep(READINGS / 10)
    return monitor, machine


def test_the_average_power_now_is_the_last_one_of_the_timeline(long_past: tuple[PowerMonitor, VirtualMachine]) -> None:
    monitor, machine = long_past
    now = machine.clock.wall()
    for ago in (0.0, 0.05, 0.1, 123.45):
        timeline = monitor.get_power_timeline("device_average", start_time=now - ago - 10, end_time=now - ago)
        told = monitor.get_power(now - ago, power_domain="device_average")
        assert told == {0: pytest.approx(timeline[0][-1][1])}


def test_asking_for_the_power_now_does_not_take_longer_the_longer_it_was_recorded(
    long_past: tuple[PowerMonitor, VirtualMachine],
) -> None:
    monitor, machine = long_past
    series = monitor._recorder._readings[0]
    now, seen = machine.clock.wall(), Counted("d", series._moments)
    series._moments = seen
    assert monitor.get_power(power_domain="device_average") is not None
    assert monitor.get_energy(now - 10, now) == {0: pytest.approx(2000, rel=0.05)}
    assert 0 < seen.count < 500  # readings that were looked at
