"""A process that is kept waiting, by a busy machine or a container that is paused, measures right all the same."""

from __future__ import annotations

import pytest

from support.sensors import SensedGpu
from zeus.device.clock import VirtualClock
from zeus.device.virtual import VirtualMachine
from zeus.monitor.meter import Meter, SampledMeter, Stamp, meter_for


def stamp(meter: Meter, moment: float) -> Stamp:
    taken = Stamp(moment)
    meter.mark(taken)
    return taken


def test_a_virtual_cards_energy_is_that_of_the_moment_however_late_it_is_asked() -> None:
    machine = VirtualMachine.in_memory("v100")
    meter = meter_for(machine.gpus[0], machine.clock)
    begin = stamp(meter, machine.clock.now())
    machine.clock.sleep(3)
    moment = machine.clock.now()
    machine.clock.sleep(5)  # between looking at the clock and at the card
    assert meter.read(begin, stamp(meter, moment)).joules == pytest.approx(3 * machine.card.idle_watts)


class Slow(VirtualClock):
    """Another's time; whoever sleeps on it comes back only when no reader would wait any longer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> float:
        return self._clock.wall()

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(SampledMeter.PATIENCE + 0.1)


def test_readings_that_came_while_their_reader_was_kept_waiting_are_not_lost() -> None:
    gpu = SensedGpu(VirtualMachine.in_memory("h200").gpus[0])
    clock = gpu.clock
    assert isinstance(clock, VirtualClock)
    clock.sleep(3)
    meter = SampledMeter(gpu, Slow(clock))  # nothing moves its timers, so that only the reader looks
    gpu.run(1.0, 300.0)
    begin = stamp(meter, clock.now())
    gpu.run(1.0, 300.0)
    assert meter.read(begin, stamp(meter, clock.now())).joules == pytest.approx(300, rel=0.05)
    meter.close()
