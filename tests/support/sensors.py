"""A virtual card with imperfect sensors, like a real one: delayed, smoothed, stepped, noisy. For tests and benchmarks.

The underlying card knows the true energy (`VirtualGpu.energy`); this one shows what a driver would report.
"""

from __future__ import annotations

import itertools
import math
import random
from bisect import bisect_right
from dataclasses import dataclass, replace

from zeus.device.cpu import CounterValue
from zeus.device.gpu import Capability, Clock, PowerSample
from zeus.device.virtual.machine import ConstantPower, VirtualGpu
from zeus.errors import DeviceError, Unsupported
from zeus.monitor import ZeusMonitor


@dataclass(frozen=True, slots=True)
class Sensors:
    """How the sensors behave; the defaults were measured on an H200. With a period of 0 the card has no such sensor."""

    counter_period: float = 0.1
    sample_period: float = 0.02
    sample_count: int = 119
    power: bool = True
    delay: float = 0.005
    smoothing: float = 0.0125
    noise: float = 0.0  # relative standard deviation of each reading
    jitter: float = 0.0  # seconds by which a sample and its stamp may be late
    missed: float = 0.0  # share of samples that are never taken
    seed: int = 0


class SensedGpu(VirtualGpu):
    """A virtual card with sensors. They notice power only through `run`."""

    def __init__(self, gpu: VirtualGpu, sensors: Sensors | None = None) -> None:
        super().__init__(gpu.machine, gpu.index, gpu.spec.uuid)
        self.sensors = s = sensors or Sensors()
        able = set(gpu.spec.capabilities) - {Capability.COUNTER, Capability.POWER, Capability.INSTANT}
        able |= {Capability.COUNTER} if s.counter_period else set()
        able |= {Capability.SAMPLES} if s.sample_period else set()
        able |= {Capability.POWER, Capability.INSTANT} if s.power else set()
        self.spec = replace(gpu.spec, capabilities=frozenset(able), exact=False)
        self._begin = self.clock.now()
        idle = self.machine.card.idle_watts
        # (moment, watts from then on, what the sensor shows at that moment)
        self._changes: list[tuple[float, float, float]] = [(self._begin, idle, idle)]

    @property
    def clock(self) -> Clock:
        return self.machine.clock

    def run(self, seconds: float, watts: float) -> None:
        """Keep the card busy at this power for this long."""
        self._change(self.clock.now(), watts)
        self.machine.run([self.index], seconds, watts)
        self._change(self.clock.now(), self.machine.card.idle_watts)

    def _change(self, moment: float, watts: float) -> None:
        self._changes.append((moment, watts, self._filtered(moment)))

    def _filtered(self, moment: float) -> float:
        """The true power after a low-pass filter."""
        k = max(0, bisect_right(self._changes, moment, key=lambda c: c[0]) - 1)
        since, watts, at_change = self._changes[k]
        if not self.sensors.smoothing:
            return watts
        return watts + (at_change - watts) * math.exp(-max(0.0, moment - since) / self.sensors.smoothing)

    def _reading(self, moment: float, tag: int) -> float:
        luck = random.Random(f"{self.sensors.seed}:{tag}")
        return self._filtered(moment - self.sensors.delay) * (1 + self.sensors.noise * luck.gauss(0, 1))

    def energy(self) -> float:
        """The counter. It lags the true energy by up to one period."""
        if not self.sensors.counter_period:
            raise Unsupported(f"card {self.index} has no energy counter.")
        self._read()
        now, period = self.clock.now(), self.sensors.counter_period
        return self._true_joules(math.floor(now / period) * period)

    def _true_joules(self, moment: float) -> float:
        joules, changes = 0.0, [*self._changes, (math.inf, 0.0, 0.0)]
        for (t0, watts, _), (t1, _, _) in itertools.pairwise(changes):
            joules += watts * max(0.0, min(t1, moment) - t0)
        return joules

    def power(self) -> float:
        if not self.sensors.power:
            raise Unsupported(f"card {self.index} does not report its power.")
        self._read()
        return self._reading(self.clock.now(), round(self.clock.now() * 1e6))

    def samples(self) -> list[PowerSample]:
        """The driver's buffer. All stamps use the wall clock's current offset, even after a test moves it."""
        period = self.sensors.sample_period
        if not period:
            raise Unsupported(f"card {self.index} keeps no power samples.")
        self._read()
        now = self.clock.now()
        offset = self.clock.wall() - now
        last = math.floor(now / period)
        taken = []
        for n in range(max(0, last - self.sensors.sample_count), last + 1):
            luck = random.Random(f"{self.sensors.seed}:{n}:when")
            moment = n * period + self.sensors.jitter * luck.random()
            if moment <= now and luck.random() >= self.sensors.missed:
                taken.append(PowerSample(moment + offset, self._reading(moment, n)))
        return taken


class FlakyCounter(ConstantPower):
    """A CPU counter that can be made to fail."""

    broken = False

    def reading(self, moment: float = 0.0) -> CounterValue:
        if self.broken:
            raise DeviceError("the counter could not be read")
        return super().reading(moment)


class FailedGpu(ZeusMonitor):
    """After an error on the GPU, torch raises at every attempt to wait for it."""

    failed = False

    def _synchronise(self) -> None:
        if self.failed:
            raise RuntimeError("CUDA error: device-side assert triggered")
