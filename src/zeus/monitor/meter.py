"""One card being watched: a thread reads it now and then, and windows ask for its energy between two moments.

    begin_window ──mark──▶ pending ──readings arrive──▶ point on the curve ──▶ a difference when somebody reads it

A mark is a time stamp; no driver is called for it. Readings come from a ticker (a daemon thread on a real clock) about
every second; whoever reads a measurement early looks at the card himself and waits until the samples have arrived.

One thread looks at a time and nobody waits for it to finish: whoever finds another at it goes without. A reader waits
for readings that do not come once. After that the card is silent, and its energy unavailable, until a mark is settled.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from zeus.device.clock import clock_of
from zeus.device.gpu import Capability, Clock, Gpu, Ticker
from zeus.errors import DeviceError, DeviceLost, DeviceSilent, NotPermitted, Unsupported
from zeus.monitor.counter_curve import CounterCurve
from zeus.monitor.energy import UNKNOWN, CurvePoint, EnergyCurve, EnergyEstimate, Source
from zeus.monitor.fork import renew_after_fork
from zeus.monitor.sensors import AVERAGED, POLLED, SAMPLE_BUFFER, Sensor, buffer_sensor
from zeus.monitor.stamps import StampMapper, spacing

log = logging.getLogger(__name__)


class Mark:
    """One moment on one card; `point` is filled in when the readings around it are known.

    A mark that is settled without a point never gets one: nobody knows the card's energy at that moment.
    """

    __slots__ = ("moment", "point", "settled")

    def __init__(self, moment: float, point: CurvePoint | None = None, settled: bool = False) -> None:
        self.moment = moment
        self.point = point
        self.settled = settled


class Meter(Protocol):
    """Energy of one card between two moments."""

    def mark(self, moment: float) -> Mark:
        """Remember this moment (now)."""

    def read(self, begin: Mark, end: Mark) -> EnergyEstimate:
        """Joules between two marks; waits at most until the readings have arrived."""

    def ready(self, mark: Mark) -> bool:
        """Whether reading this mark would not wait."""

    def hurry(self, on: bool) -> None:
        """Look at the card often, so that marks are settled soon; or as seldom as its sensors allow."""

    def close(self) -> None:
        """Stop watching."""


class ExactMeter:
    """A virtual card knows its energy at any moment, so a mark simply asks."""

    def __init__(self, gpu: Gpu, clock: Clock) -> None:
        self._gpu = gpu
        self._own = clock is clock_of(gpu)  # else the card knows nothing of the windows' moments
        self._complained = False

    def mark(self, moment: float) -> Mark:
        """Remember the energy at this moment, even where this process was kept waiting since; none of a lost card."""
        try:
            at = getattr(self._gpu, "energy_at", None) if self._own else None
            return Mark(moment, CurvePoint(self._gpu.energy() if at is None else at(moment), moment))
        except DeviceError as gone:
            if not self._complained:
                log.warning("%s; its energy is unavailable.", gone)
            self._complained = True
            return Mark(moment)

    def read(self, begin: Mark, end: Mark) -> EnergyEstimate:
        """Joules between two marks: exact."""
        if begin.point is None or end.point is None:
            return UNKNOWN
        return EnergyEstimate(end.point.joules - begin.point.joules, 0.0, Source.MODEL)

    def ready(self, mark: Mark) -> bool:
        """Always."""
        return True

    def hurry(self, on: bool) -> None:
        """Nothing to hurry."""

    def close(self) -> None:
        """Nothing runs."""


class BlindMeter(ExactMeter):
    """A card that tells neither its energy nor its power."""

    def mark(self, moment: float) -> Mark:
        """Nothing to remember."""
        return Mark(moment)


class SampledMeter:
    """A card with sensors: keeps its energy curve up to date."""

    POLL_SECONDS = 0.05  # where the driver keeps no buffer, power is polled this often
    BUFFER_SHARE = 0.6  # of the driver's buffer may pass between two looks at it
    COUNTER_COST = 1500  # a counter call that takes t may be made every 1500 t: below 0.1 % of one core
    PATIENCE = 2.0  # seconds a reader waits for readings that should take a tenth of that
    HURRY_SECONDS = 0.1
    FEW = 5  # samples, before their spacing can be told
    LOOK_SECONDS = 0.005  # how often a waiting reader looks
    LAST_LOOKS = 20  # of a reader that is late because its whole process was kept waiting, and finds another looking
    MOST_PENDING = 100_000  # marks that wait for readings; a card that stays silent must not fill the memory

    def __init__(self, gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> None:
        self._gpu = gpu
        self._clock = clock
        self._settled = settled  # told after each look, when windows may have become readable
        self._can = gpu.spec.capabilities
        self._pending: deque[Mark] = deque()
        self._lock = threading.Lock()  # over the ticker; never held over a call of the driver
        self._looking = threading.Lock()  # held by who looks at the card; nobody ever waits for it
        self._given_up = False  # a reader waited in vain, and no mark has been settled since
        self._lost = False
        self._complained = False
        self._stamps = StampMapper()
        self._counter_due = -1.0
        self._counter_every = 1.0
        self._closed = False
        self._hurried = False
        self._began = clock.now()
        self._curve = self._choose_curve()
        self._tick()
        self._every = self._calm = self._choose_period()
        self._ticker: Ticker | None = None
        self._start()
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

    def _start(self) -> None:
        try:
            self._ticker = self._clock.every(self._every, self._watch)
        except RuntimeError as why:  # no more threads to be had: whoever reads a measurement reads the card himself
            self._closed = True
            log.warning("%s is read only when its energy is asked for: %s", self._gpu.spec.name, why)

    def _watch(self) -> None:
        """What the thread does. A buffer that was nearly empty at first, as after loading the driver, has grown."""
        self._tick()
        calm = self._choose_period()
        if not self._calm / 2 <= calm <= self._calm * 2:
            self._calm = calm
            self._pace()

    def _pace(self) -> None:
        """Look as often as is wanted now."""
        every = min(self.HURRY_SECONDS, self._calm) if self._hurried else self._calm
        with self._lock:
            if every == self._every or self._ticker is None or self._closed:
                return
            ticker, self._every = self._ticker, every
            self._start()
        ticker.stop(wait=0)

    # ------------------------------------------------------------------ reading the card

    def _tick(self) -> bool:
        """Look at the card; False where somebody else is at it."""
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
            log.warning("%s; its energy is unavailable from here on.", gone)
        except Exception as failed:  # whatever a driver's binding may raise: the training is worth more
            self._given_up = self._given_up or isinstance(failed, DeviceSilent)
            if not self._complained:
                log.warning("reading %s failed: %s", self._gpu.spec.name, failed)
            self._complained = True

    def _poll(self) -> None:
        failed: DeviceError | None = None
        try:
            self._poll_power()
        except DeviceLost:
            raise
        except DeviceError as why:
            failed = why  # the counter may answer all the same
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
                return  # a driver that was loaded just now; what it has sampled stays in its buffer
            self._curve = curve = self._curve_of(buffer_sensor(spacing(samples)))
        curve.add_samples(self._stamps.to_monotonic(samples, now, wall))

    def _poll_counter(self) -> None:
        before = self._clock.now()
        try:
            joules = self._gpu.energy()
        except (Unsupported, NotPermitted):  # it had one: without it, a gap in the samples would wait for ever
            if isinstance(self._curve, EnergyCurve):
                self._can -= {Capability.COUNTER}
                self._curve.give_up_on_counter()
            raise
        after = self._clock.now()
        self._curve.add_counter((before + after) / 2, joules)
        self._counter_every = min(30.0, max(1.0, self.COUNTER_COST * (after - before)))
        self._counter_due = after + self._counter_every

    def _settle(self) -> None:
        while self._pending and self._curve.covers(self._pending[0].moment):
            mark = self._pending.popleft()
            if mark.moment >= self._curve.oldest:  # before that nothing is known, which is not the same as nothing used
                mark.point = self._curve.at(mark.moment)
            mark.settled = True
            self._given_up = False
        while len(self._pending) > self.MOST_PENDING:
            self._pending.popleft().settled = True

    # ------------------------------------------------------------------ windows

    def mark(self, moment: float) -> Mark:
        """Remember this moment; the driver is not called."""
        mark = Mark(moment, settled=self._lost)
        if self._lost:
            return mark
        self._pending.append(mark)
        if self._ticker is None and not self._closed:  # after a fork the thread has to be started anew
            self._start()
        return mark

    def ready(self, mark: Mark) -> bool:
        """Whether reading this mark would not wait."""
        return mark.settled or self._lost

    def read(self, begin: Mark, end: Mark) -> EnergyEstimate:
        """Joules between two marks; waits, for some seconds at most, for the readings around the later one."""
        self._await(begin, end)
        if begin.point is None or end.point is None:
            return UNKNOWN
        return self._curve.between(begin.point, end.point)

    def _await(self, *marks: Mark) -> None:
        deadline = self._clock.now() + self.PATIENCE
        last = 0
        while not all(map(self.ready, marks)):
            is_late = self._given_up or self._clock.now() >= deadline  # one more look: we may have been kept waiting
            looked = self._tick()
            if is_late and not all(map(self.ready, marks)):
                last += 1
                if self._given_up or looked or last > self.LAST_LOOKS:
                    self._given_up = True
                    return
            if not all(map(self.ready, marks)):
                self._clock.sleep(self.LOOK_SECONDS)

    def hurry(self, on: bool) -> None:
        """Look ten times a second, or as seldom as the sensors allow."""
        self._hurried = on
        self._pace()

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._closed = True
            ticker = self._ticker
        if ticker is not None:
            ticker.stop(wait=0)  # it may be in a driver that hangs

    def after_fork(self) -> None:
        """In a forked child the thread is gone, and a lock may be held by it for ever."""
        self._lock, self._looking = threading.Lock(), threading.Lock()
        self._ticker = None


def meter_for(gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> Meter:
    """The meter that suits what this card can tell; `settled` is called when windows may have become readable."""
    if gpu.spec.exact:
        return ExactMeter(gpu, clock)
    if gpu.spec.capabilities & {Capability.COUNTER, Capability.POWER, Capability.SAMPLES}:
        return SampledMeter(gpu, clock, settled)
    return BlindMeter(gpu, clock)
