"""Watches one card. A thread reads it regularly, and windows ask for its energy between two moments.

    begin_window ──stamp──▶ pending ──readings arrive──▶ point on the curve ──▶ a difference when somebody reads it

Taking a stamp does not call the driver. Readings come from a ticker (a daemon thread on a real clock), about once a
second. A thread that reads a measurement early reads the card itself, and waits until the samples have arrived.

Only one thread reads the card at a time, and no other thread waits for it.
If readings do not come, a reader waits for them only once. After that the card counts as silent, and its energy as
unavailable, until a stamp is settled.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable

from zeus.device.clock import clock_of
from zeus.device.cpu import CpuReadings
from zeus.device.gpu import Capability, Clock, Gpu, Ticker
from zeus.errors import DeviceError, DeviceLost, DeviceSilent, NotPermitted, Unsupported
from zeus.fork import renew_after_fork
from zeus.monitor.energy import UNKNOWN, CounterCurve, EnergyCurve, EnergyEstimate, Source
from zeus.monitor.sample_curve import (
    AVERAGED,
    POLLED,
    SAMPLE_BUFFER,
    CurvePoint,
    Sensor,
    StampMapper,
    buffer_sensor,
    spacing,
)

log = logging.getLogger(__name__)


class Stamp:
    """One moment: on both clocks, on the CPU counters, and on each card once the readings around it are known.

    `points` has an entry for each card whose energy at this moment is settled: None if it will never be known.
    """

    __slots__ = ("cpus", "moment", "points", "wall")

    def __init__(self, moment: float, wall: float = math.nan, cpus: CpuReadings | None = None) -> None:
        self.moment = moment
        self.wall = wall
        self.cpus: CpuReadings = {} if cpus is None else cpus
        self.points: dict[Meter, CurvePoint | None] = {}


class Meter:
    """Measures the energy of one card between two moments. This one is of a card that reports none: it is unknown."""

    _complained = False

    def _complain(self, text: str, *arguments: object) -> None:
        """Log the first thing that keeps this card from being read."""
        if not self._complained:
            self._complained = True
            log.warning(text, *arguments)

    def mark(self, stamp: Stamp) -> None:
        """Remember this moment, which is now."""
        stamp.points[self] = None

    def ready(self, stamp: Stamp) -> bool:
        """Whether the energy at this moment can be read without waiting."""
        return self in stamp.points

    def read(self, begin: Stamp, end: Stamp) -> EnergyEstimate:
        """Joules between two moments. Waits a few seconds at most for the readings around the later one."""
        first, last = begin.points.get(self), end.points.get(self)
        return UNKNOWN if first is None or last is None else self._between(first, last)

    def _between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        return UNKNOWN

    def poll_fast(self, on: bool) -> None:
        """Read the card often, so that moments are settled soon, or as seldom as its sensors allow."""

    def close(self) -> None:
        """Stop watching."""


class ExactMeter(Meter):
    """Meter of a virtual card, which knows its energy at any moment."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        own = clock is clock_of(gpu)  # otherwise the moments of windows mean nothing to the card
        at: Callable[[float], float] | None = getattr(gpu, "energy_at", None) if own else None
        self._energy_at = at or (lambda moment: gpu.energy())

    def mark(self, stamp: Stamp) -> None:
        """Remember the energy at this moment, even if this process was delayed since. Unknown for a lost card."""
        stamp.points[self] = None
        try:
            stamp.points[self] = CurvePoint(self._energy_at(stamp.moment), stamp.moment)
        except DeviceError as gone:
            self._complain("%s Its energy is unavailable.", gone)

    def _between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        return EnergyEstimate(end.joules - begin.joules, 0.0, Source.MODEL)


class SampledMeter(Meter):
    """Meter of a card with sensors. Keeps the card's energy curve up to date."""

    POLL_SECONDS = 0.05  # how often power is polled if the driver has no buffer
    BUFFER_SHARE = 0.6  # read the driver's buffer before more than this share of it is new
    COUNTER_COST = 1500  # a counter call that takes t is made every 1500 t, so it uses less than 0.1 % of one core
    PATIENCE = 2.0  # seconds that a reader waits for readings; they should take a tenth of that
    FAST_SECONDS = 0.1
    FEW = 5  # samples needed to know their spacing
    LOOK_SECONDS = 0.005  # how often a waiting reader looks
    LAST_LOOKS = 20  # after the deadline, while another thread reads the card: the whole process may have been delayed
    MOST_PENDING = 100_000  # stamps that wait for readings; a silent card must not fill the memory

    def __init__(self, gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> None:
        self._gpu = gpu
        self._clock = clock
        self._settled = settled  # called after each look, when windows may have become readable
        self._can = gpu.spec.capabilities
        self._pending: deque[Stamp] = deque()
        self._looking = threading.Lock()  # held while a thread reads the card; nobody ever waits for it
        self._given_up = False  # a reader waited in vain, and no stamp has been settled since
        self._lost = False
        self._stamps = StampMapper()
        self._counter_due = -1.0
        self._counter_every = 1.0
        self._is_fast = False
        self._began = clock.now()
        self._curve = self._choose_curve()
        self._tick()
        self._ticker: Ticker | None = None  # until it runs
        self._calm = self._choose_period()
        self._ticker = clock.every(self._calm, self._watch)
        renew_after_fork(self)

    def _choose_curve(self) -> EnergyCurve | CounterCurve:
        if Capability.SAMPLES in self._can:
            return self._curve_of(SAMPLE_BUFFER)  # until the buffer shows its spacing
        if Capability.POWER in self._can:
            return self._curve_of(POLLED if Capability.INSTANT in self._can else AVERAGED)
        return CounterCurve(ceiling=self._gpu.spec.ceiling_watts)

    def _curve_of(self, sensor: Sensor) -> EnergyCurve:
        return EnergyCurve(sensor, ceiling=self._gpu.spec.ceiling_watts)

    def _choose_period(self) -> float:
        if Capability.SAMPLES not in self._can:
            return self.POLL_SECONDS if Capability.POWER in self._can else max(0.1, self._counter_every)
        span = self._stamps.span
        return min(2.0, max(self.POLL_SECONDS, self.BUFFER_SHARE * span))

    def _watch(self) -> None:
        """What the thread runs. Adapts the period: a buffer that was nearly empty at first has grown."""
        self._tick()
        calm = self._choose_period()
        if not self._calm / 2 <= calm <= self._calm * 2:
            self._calm = calm
            self._pace()

    def _pace(self) -> None:
        if self._ticker is not None:
            self._ticker.pace(min(self.FAST_SECONDS, self._calm) if self._is_fast else self._calm)

    # ------------------------------------------------------------------ reading the card

    def _tick(self) -> bool:
        """Read the card. False if another thread is reading it."""
        if not self._looking.acquire(blocking=False):
            return False
        try:
            if not self._lost:
                self._look()
            self._settle()
        finally:
            self._looking.release()
        if self._settled is not None:
            self._settled()
        return True

    def _look(self) -> None:
        try:
            self._poll()
        except DeviceLost as gone:
            self._lost = True
            self._pending.clear()
            log.warning("%s Its energy is unavailable from now on.", gone)
        except Exception as failed:  # a binding may raise anything, and must not stop the training
            self._given_up = self._given_up or isinstance(failed, DeviceSilent)
            self._complain("Reading %s failed: %s", self._gpu.spec.name, failed)

    def _poll(self) -> None:
        failed: DeviceError | None = None
        try:
            self._poll_power()
        except DeviceLost:
            raise
        except DeviceError as why:
            failed = why  # the counter may still answer
        if Capability.COUNTER in self._can and (self._curve.wants_counter or self._clock.now() >= self._counter_due):
            self._poll_counter()
        if failed is not None:
            raise failed

    def _poll_power(self) -> None:
        curve = self._curve
        if not isinstance(curve, EnergyCurve):
            return
        if Capability.SAMPLES not in self._can:
            before = self._clock.now()
            watts = self._gpu.power()
            curve.add_samples([((before + self._clock.now()) / 2, watts)])
            return
        now, wall = self._clock.now(), self._clock.wall()
        samples = self._gpu.samples()
        if curve.newest == -math.inf:
            if len(samples) < self.FEW and now < self._began + self.PATIENCE / 2:
                return  # the driver was just loaded; its samples stay in its buffer
            self._curve = curve = self._curve_of(buffer_sensor(spacing(samples)))
        curve.add_samples(self._stamps.to_monotonic(samples, now, wall))

    def _poll_counter(self) -> None:
        before = self._clock.now()
        try:
            joules = self._gpu.energy()
        except (Unsupported, NotPermitted):  # the counter is gone: a gap in the samples must not wait for it
            if isinstance(self._curve, EnergyCurve):
                self._can -= {Capability.COUNTER}
                self._curve.give_up_on_counter()
            raise
        after = self._clock.now()
        self._curve.add_counter((before + after) / 2, joules, within=(after - before) / 2)
        self._counter_every = min(30.0, max(1.0, self.COUNTER_COST * (after - before)))
        self._counter_due = after + self._counter_every

    def _settle(self) -> None:
        curve = self._curve
        while self._pending and curve.covers(self._pending[0].moment):
            stamp = self._pending.popleft()  # before the oldest reading the energy is unknown, not 0
            stamp.points[self] = curve.at(stamp.moment) if stamp.moment >= curve.oldest else None
            self._given_up = False
        while len(self._pending) > self.MOST_PENDING:
            self._pending.popleft().points[self] = None

    # ------------------------------------------------------------------ windows

    def mark(self, stamp: Stamp) -> None:
        """Remember this moment. Does not call the driver."""
        if self._lost:
            stamp.points[self] = None
            return
        self._pending.append(stamp)
        if self._ticker is not None and self._ticker.is_asleep:  # forked
            self._ticker.wake()

    def ready(self, stamp: Stamp) -> bool:
        return self in stamp.points or self._lost

    def read(self, begin: Stamp, end: Stamp) -> EnergyEstimate:
        self._await(begin, end)
        return super().read(begin, end)

    def _between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        return self._curve.between(begin, end)

    def _await(self, *stamps: Stamp) -> None:
        deadline = self._clock.now() + self.PATIENCE
        late_looks = 0  # after the deadline: this process may have been delayed
        while not all(map(self.ready, stamps)):
            late_looks += self._given_up or self._clock.now() >= deadline
            looked = self._tick()
            if all(map(self.ready, stamps)):
                return
            if late_looks and (self._given_up or looked or late_looks > self.LAST_LOOKS):
                self._given_up = True
                return
            self._clock.sleep(self.LOOK_SECONDS)

    def poll_fast(self, on: bool) -> None:
        self._is_fast = on
        self._pace()

    def close(self) -> None:
        if self._ticker is not None:
            self._ticker.stop(wait=0)  # the driver may hang

    def after_fork(self) -> None:
        """The parent's thread may have held the lock."""
        self._looking = threading.Lock()


def meter_for(gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> Meter:
    """The meter for what this card can report. `settled` is called when windows may have become readable."""
    if gpu.spec.exact:
        return ExactMeter(gpu, clock)
    if gpu.spec.capabilities & {Capability.COUNTER, Capability.POWER, Capability.SAMPLES}:
        return SampledMeter(gpu, clock, settled)
    return Meter()
