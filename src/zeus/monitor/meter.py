"""One card being watched: a thread reads it now and then, and windows ask for its energy between two moments.

    begin_window ──mark──▶ pending ──readings arrive──▶ point on the curve ──▶ a difference when somebody reads it

A mark is a time stamp; no driver is called for it. Readings come from a ticker (a daemon thread on a real clock) about
every second; whoever reads a measurement early reads the card himself and waits until the samples have arrived.
"""

from __future__ import annotations

import itertools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from zeus.device.clock import clock_of
from zeus.device.gpu import Capability, Clock, Gpu, PowerSample, Ticker
from zeus.errors import DeviceError, DeviceLost, NotPermitted, Unsupported
from zeus.monitor.energy import (
    AVERAGED,
    POLLED,
    SAMPLE_BUFFER,
    UNKNOWN,
    CounterCurve,
    EnergyCurve,
    Estimate,
    Point,
    Source,
    buffer_sensor,
)
from zeus.monitor.forks import renew_after_fork

log = logging.getLogger(__name__)


class Mark:
    """One moment on one card; `point` is filled in when the readings around it are known.

    A mark that is settled without a point never gets one: nobody knows the card's energy at that moment.
    """

    __slots__ = ("moment", "point", "settled")

    def __init__(self, moment: float, point: Point | None = None, settled: bool = False) -> None:
        self.moment = moment
        self.point = point
        self.settled = settled


class Meter(Protocol):
    """Energy of one card between two moments."""

    def mark(self, moment: float) -> Mark:
        """Remember this moment (now)."""

    def read(self, begin: Mark, end: Mark) -> Estimate:
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
            return Mark(moment, Point(self._gpu.energy() if at is None else at(moment), moment))
        except DeviceError as gone:
            if not self._complained:
                log.warning("%s; its energy is unavailable.", gone)
            self._complained = True
            return Mark(moment)

    def read(self, begin: Mark, end: Mark) -> Estimate:
        """Joules between two marks: exact."""
        if begin.point is None or end.point is None:
            return UNKNOWN
        return Estimate(end.point.joules - begin.point.joules, 0.0, Source.MODEL)

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

    def __init__(self, gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> None:
        self._gpu = gpu
        self._clock = clock
        self._settled = settled  # told after each look, when windows may have become readable
        self._can = gpu.spec.capabilities
        self._pending: deque[Mark] = deque()
        self._lock = threading.RLock()
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
            return EnergyCurve(SAMPLE_BUFFER)  # until the buffer shows its spacing
        if Capability.POWER in self._can:
            return EnergyCurve(POLLED if Capability.INSTANT in self._can else AVERAGED)
        return CounterCurve()

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
        ticker.stop()  # without the lock, which the thread may be waiting for

    # ------------------------------------------------------------------ reading the card

    def _tick(self) -> None:
        with self._lock:
            try:
                if not self._lost:
                    self._poll()
            except DeviceLost as gone:
                self._lost = True
                self._pending.clear()
                log.warning("%s; its energy is unavailable from here on.", gone)
            except Exception as failed:  # whatever a driver's binding may raise: the training is worth more
                if not self._complained:
                    log.warning("reading %s failed: %s", self._gpu.spec.name, failed)
                self._complained = True
            self._settle()
        if self._settled is not None:
            self._settled()

    def _poll(self) -> None:
        curve = self._curve
        if isinstance(curve, EnergyCurve):
            if Capability.SAMPLES in self._can:
                now, wall = self._clock.now(), self._clock.wall()
                samples = self._gpu.samples()
                if curve.newest == -math.inf:
                    if len(samples) < self.FEW and now < self._began + self.PATIENCE / 2:
                        return  # a driver that was loaded just now; what it has sampled stays in its buffer
                    self._curve = curve = EnergyCurve(buffer_sensor(_spacing(samples)))
                curve.add_samples(self._stamps.to_monotonic(samples, now, wall))
            else:
                before = self._clock.now()
                watts = self._gpu.power()
                curve.add_samples([((before + self._clock.now()) / 2, watts)])
        if Capability.COUNTER in self._can and (curve.wants_counter or self._clock.now() >= self._counter_due):
            before = self._clock.now()
            try:
                joules = self._gpu.energy()
            except (Unsupported, NotPermitted):  # it had one: without it, a gap in the samples would wait for ever
                if isinstance(curve, EnergyCurve):
                    self._can -= {Capability.COUNTER}
                    curve.give_up_on_counter()
                raise
            after = self._clock.now()
            curve.add_counter((before + after) / 2, joules)
            self._counter_every = min(30.0, max(1.0, self.COUNTER_COST * (after - before)))
            self._counter_due = after + self._counter_every

    def _settle(self) -> None:
        while self._pending and self._curve.covers(self._pending[0].moment):
            mark = self._pending.popleft()
            if mark.moment >= self._curve.oldest:  # before that nothing is known, which is not the same as nothing used
                mark.point = self._curve.at(mark.moment)
            mark.settled = True

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

    def read(self, begin: Mark, end: Mark) -> Estimate:
        """Joules between two marks; waits until the readings around the later one have arrived."""
        deadline = self._clock.now() + self.PATIENCE
        over = False
        while not (over or (self.ready(begin) and self.ready(end))):
            over = self._clock.now() >= deadline  # one more look: it may be this process that was kept waiting
            self._tick()
            if not (over or self.ready(end)):
                self._clock.sleep(self.LOOK_SECONDS)
        if begin.point is None or end.point is None:
            return UNKNOWN
        return self._curve.between(begin.point, end.point)

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
            ticker.stop()

    def after_fork(self) -> None:
        """In a forked child the thread is gone, and a lock may be held by it for ever."""
        self._lock = threading.RLock()
        self._ticker = None


def _spacing(samples: list[PowerSample]) -> float:
    """Seconds from one sample in the driver's buffer to the next, whichever are missing."""
    gaps = sorted(b.stamp - a.stamp for a, b in itertools.pairwise(samples))
    return gaps[len(gaps) // 2] if gaps else SAMPLE_BUFFER.spacing


class StampMapper:
    """The driver stamps samples with the wall clock, which anybody may step; windows live on the monotonic one."""

    STEP = 0.002  # seconds: offsets closer than this are the same clock, slewed
    RECENT = 1.0  # seconds: the newest sample in the buffer is not older than this

    def __init__(self) -> None:
        self._offset: float | None = None  # wall minus monotonic when last looked at
        self._last: float | None = None  # newest stamp seen, as stamped
        self.span = 0.0  # seconds that the driver's buffer held when last looked at

    def to_monotonic(self, samples: list[PowerSample], now: float, wall: float) -> list[tuple[float, float]]:
        """The samples not seen before, on the monotonic clock.

        The buffer is in order of sampling, so what is new comes after the newest one seen, whatever the stamps say. If
        the clock was stepped since the last look, stamps up to the one jump among them are on the old clock.
        """
        if not samples:
            return []
        offset, before = wall - now, self._offset
        self._offset = offset
        stepped = before is not None and abs(offset - before) > self.STEP
        if not stepped:
            self.span = samples[-1].stamp - samples[0].stamp
        new = samples
        if self._last is not None:
            known = [i for i, s in enumerate(samples) if abs(s.stamp - self._last) < EnergyCurve.SAME]
            new = samples[known[-1] + 1 :] if known else samples
        self._last = samples[-1].stamp
        if not stepped or before is None:
            return [(s.stamp - offset, s.watts) for s in new]
        jump = _jump(samples, offset - before)
        if jump == len(samples) and abs(samples[-1].stamp - before - now) > self.RECENT:
            jump = 0  # stepped before the oldest of them was taken: on the old clock they would be from another time
        first_on_new = jump - (len(samples) - len(new))
        return [(s.stamp - (before if i < first_on_new else offset), s.watts) for i, s in enumerate(new)]


def _jump(samples: list[PowerSample], step: float) -> int:
    """Index of the first sample stamped on the new clock: where the distance of two stamps is off by the step.

    No such place means that none has been taken since.
    """
    gaps = [b.stamp - a.stamp for a, b in itertools.pairwise(samples)]
    if not gaps:
        return 0
    nearest = min(range(len(gaps)), key=lambda i: abs(gaps[i] - step))
    return nearest + 1 if abs(gaps[nearest] - step) < abs(step) / 2 else len(samples)


def meter_for(gpu: Gpu, clock: Clock, settled: Callable[[], None] | None = None) -> Meter:
    """The meter that suits what this card can tell; `settled` is called when windows may have become readable."""
    if gpu.spec.exact:
        return ExactMeter(gpu, clock)
    if gpu.spec.capabilities & {Capability.COUNTER, Capability.POWER, Capability.SAMPLES}:
        return SampledMeter(gpu, clock, settled)
    return BlindMeter(gpu, clock)
