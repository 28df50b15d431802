"""Counter readings and power samples -> joules with an error bound. No clock, no device: numbers in, numbers out.

A card's energy counter is right in the long run but moves in steps (100 ms on an H200), so the difference of two
readings says little about a short window. Its power samples (every 20 ms) have the shape but see it late and blurred: a
step of the load appears `delay` later and then rises as through a first-order low-pass with time constant `smoothing`.
Both can be undone, because for such a filter the power that held between two samples y0 and y1, h apart, is

    P = (y1 - a*y0) / (1 - a),   a = exp(-h / smoothing)

So the curve of cumulative energy is the sum of h*P over the samples, kept within one counter step of the counter.
A window is a difference on that curve; windows that tile an interval sum to it, because the curve is never rewritten
where it has been read.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise


class Source(StrEnum):
    """How a number of joules was obtained."""

    COUNTER_AND_SAMPLES = "counter+samples"  # shaped by the driver's samples, anchored on the counter
    COUNTER = "counter"  # the counter, shaped by polled power where there is any
    INTEGRATED = "integrated"  # power readings alone
    MODEL = "model"  # a virtual card's own arithmetic: exact
    UNAVAILABLE = "unavailable"  # the card tells neither; the number is NaN


@dataclass(frozen=True, slots=True)
class Sensor:
    """How a stream of power readings sees the card."""

    delay: float  # seconds from the draw to the stamp of the reading that begins to show it
    smoothing: float  # time constant of the low-pass, seconds; 0 = readings are instantaneous
    doubt: float  # how far the energy between two readings may be off, as a share of the change between them
    jitter: float  # seconds by which stamps, and so the ends of a window, may be off
    gain: float  # relative disagreement with the counter that a long average still shows
    spacing: float  # seconds from one reading to the next
    buffered: bool = False  # the driver keeps the readings, so that none is missed
    average: float = 0.0  # seconds that a reading is the mean of; 0 = none


# Found by switching loads of known times on an H200 and fitting the response of its 20 ms buffer (docs/measuring.md).
SAMPLE_BUFFER = Sensor(0.005, smoothing=0.0125, doubt=0.15, jitter=0.003, gain=0.007, spacing=0.02, buffered=True)
POLLED = Sensor(delay=0.0, smoothing=0.0, doubt=0.5, jitter=0.025, gain=0.02, spacing=0.05)
# Cards that tell no instantaneous power tell the mean of the last second, which is right about half a second ago.
AVERAGED = Sensor(delay=0.5, smoothing=0.0, doubt=0.5, jitter=0.025, gain=0.02, spacing=0.05, average=1.0)


def buffer_sensor(spacing: float) -> Sensor:
    """How a driver's buffer sees the card: as the one that was studied if it looks like it, else nobody knows how.

    Then readings are joined by straight lines, and each may be the mean of some time before: 0.2 s is more than any
    sensor known to us takes.
    """
    if 0.75 <= spacing / SAMPLE_BUFFER.spacing <= 1.5:
        return SAMPLE_BUFFER
    return replace(POLLED, jitter=spacing / 2, spacing=spacing, buffered=True, average=max(0.2, 2 * spacing))


@dataclass(frozen=True, slots=True)
class Point:
    """The curve at one moment: joules since it began, and what is needed to bound a difference of two such points."""

    joules: float
    moment: float
    variance: float = 0.0  # of the energy so far, growing along the curve
    edge: float = 0.0  # standard error from where exactly between two readings this moment lies
    watts: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Energy of a window with its 95 % half-width."""

    joules: float
    error: float
    source: Source


UNKNOWN = Estimate(math.nan, math.nan, Source.UNAVAILABLE)


class EnergyCurve:
    """Cumulative energy of one card over time.

    >>> curve = EnergyCurve(SAMPLE_BUFFER)
    >>> curve.add_samples((0.02 * i, 300.0) for i in range(600))
    >>> window = curve.between(curve.at(1.0), curve.at(11.0))
    >>> round(window.joules, 6), window.source.value
    (3000.0, 'integrated')
    """

    KEEP = 30.0  # seconds of samples kept; what is older has been read or never will be
    GAP = 0.25  # at least; readings further apart do not know what happened in between: the counter does
    ENOUGH = 20  # counter steps' worth of energy before counter and samples are compared
    SPREAD = 10.0  # seconds over which a disagreement with the counter is worked off
    CROWDED = 2.5  # readings: windows shorter than this have ends that blur each other
    SAME = 0.0015  # seconds: drivers restate the stamp of a sample with some microseconds of noise

    def __init__(self, sensor: Sensor, counter_step: float = 0.1) -> None:
        self.sensor = sensor
        self.counter_step = counter_step
        self._gap = max(self.GAP, 3 * sensor.spacing)
        self._times: list[float] = []
        self._watts: list[float] = []  # as read
        self._held: list[float] = []  # _held[k]: power between reading k-1 and k, blur undone; _held[0] is unused
        self._joules: list[float] = []
        self._variance: list[float] = []
        self._shift = [(-math.inf, 0.0)]  # (moment, joules): correction towards the counter, linear in between
        self._waiting: list[tuple[float, float]] = []  # counter readings not yet covered by samples
        self._base: tuple[float, float] | None = None  # counter minus curve at the first reading, and one step's joules
        self._counted: deque[tuple[float, float]] = deque(maxlen=8)  # (counter, samples' joules) at the last readings
        self._counter_broken = False
        self._hole: tuple[float, float] | None = None  # a gap in the samples that the counter has yet to fill

    # ------------------------------------------------------------------ facts in

    def add_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Power readings (moment, watts), oldest first; those already known are passed over."""
        for moment, watts in samples:
            time = moment - self.sensor.delay
            if not math.isfinite(watts):
                continue
            if not self._times:
                self._append(time, watts, watts, 0.0, 0.0)
            elif time > self._times[-1] + self.SAME:
                self._extend(time, watts)
        self._settle()

    def add_counter(self, moment: float, joules: float) -> None:
        """A reading of the energy counter; it speaks of up to one counter step earlier."""
        if not self._counter_broken and math.isfinite(joules):
            self._waiting.append((moment, joules))
            self._settle()

    @property
    def wants_counter(self) -> bool:
        """Samples were missed: only a counter reading can say what was used meanwhile."""
        return self._hole is not None

    def _extend(self, time: float, watts: float) -> None:
        h = time - self._times[-1]
        before = self._watts[-1]
        if self.sensor.smoothing and h < self._gap:
            a = math.exp(-h / self.sensor.smoothing)
            held = max(0.0, (watts - a * before) / (1 - a))
        else:
            held = (watts + before) / 2
        change = abs(watts - before)  # a small one is noise, of which all is in doubt; a large one is the load's
        doubt = max(self.sensor.doubt * change, min(0.9 * change, 0.01 * watts)) * h
        if h >= self._gap and self._base is not None:
            self._hole = (self._hole[0] if self._hole else self._times[-1], time)
        elif h >= self._gap:
            doubt = max(doubt, 0.5 * held * h)
        self._append(time, watts, held, self._joules[-1] + held * h, self._variance[-1] + doubt * doubt)

    def _append(self, time: float, watts: float, held: float, joules: float, variance: float) -> None:
        self._times.append(time)
        self._watts.append(watts)
        self._held.append(held)
        self._joules.append(joules)
        self._variance.append(variance)
        old = bisect_right(self._times, time - self.KEEP) - 1
        if old > 512:  # now and then, so that it costs nothing
            for column in (self._times, self._watts, self._held, self._joules, self._variance):
                del column[:old]

    # ------------------------------------------------------------------ the counter's word

    def _settle(self) -> None:
        """Work in the counter readings that the samples have caught up with."""
        while self._waiting and self._sampled(self._waiting[0][0]):
            moment, counter = self._waiting.pop(0)
            here = self._shape(moment)
            step = self.counter_step * here.watts
            excess = counter - here.joules - self._shift_at(moment)
            if self._base is None or (self._counted and counter < self._counted[-1][0]):  # or the driver was reloaded
                self._base = (excess, step)
                self._counted.clear()
            if self._hole is not None and moment > self._hole[1]:
                begin, end = self._hole
                missed = excess - self._base[0]
                self._bend(begin, end, max(missed, self._shape(begin).joules - self._shape(end).joules))  # never falls
                self._hole = None
                self._counted.clear()
            self._counted.append((counter, here.joules))
            counted, sampled = (now - then for now, then in zip(self._counted[-1], self._counted[0], strict=True))
            low, high = self._base[0] - step, self._base[0] + self._base[1]
            if sampled < self.ENOUGH * step or low <= excess <= high:
                continue  # too early to tell, or agreed
            if not 0.5 < counted / sampled < 2:  # some cards' counters stand still: the samples know better
                self.give_up_on_counter()
                return
            newest = self._times[-1]
            self._bend(newest, newest + self.SPREAD, excess - min(max(excess, low), high))

    def give_up_on_counter(self) -> None:
        """From here on the readings of power are all there is."""
        self._counter_broken, self._base, self._hole = True, None, None
        self._waiting.clear()
        if self._times:
            self._bend(self._times[-1], self._times[-1] + self.SPREAD, 0.0)

    def _bend(self, begin: float, end: float, joules: float) -> None:
        """From `begin` to `end`, move the curve by this much; before, it stays; after, it keeps the difference."""
        now = self._shift_at(begin)
        while self._shift[-1][0] >= begin:
            self._shift.pop()
        self._shift += [(begin, now), (end, now + joules)]
        if len(self._shift) > 16:
            self._shift = [(-math.inf, self._shift[-9][1]), *self._shift[-8:]]

    def _shift_at(self, moment: float) -> float:
        knots = self._shift
        if moment >= knots[-1][0]:
            return knots[-1][1]
        for (t0, j0), (t1, j1) in reversed(list(pairwise(knots))):
            if t0 <= moment < t1:
                return j0 if math.isinf(t0) else j0 + (j1 - j0) * (moment - t0) / (t1 - t0)
        return knots[0][1]

    # ------------------------------------------------------------------ answers

    def covers(self, moment: float) -> bool:
        """Whether the curve is known, for good, at this moment."""
        return self._sampled(moment + self.sensor.average / 2) and (self._hole is None or moment <= self._hole[0])

    def _sampled(self, moment: float) -> bool:
        return len(self._times) >= 3 and moment < self._times[-2]

    @property
    def newest(self) -> float:
        """Moment of the newest reading, -inf before the first."""
        return self._times[-1] if self._times else -math.inf

    @property
    def oldest(self) -> float:
        """Earliest moment that can be asked about, +inf before the first reading."""
        return self._times[0] if self._times else math.inf

    def at(self, moment: float) -> Point:
        """The curve at a covered moment (a moment before the first reading is taken as the first reading)."""
        point = self._shape(moment)
        return replace(point, joules=point.joules + self._shift_at(moment))

    def _shape(self, moment: float) -> Point:
        """The samples' own word.

        People begin and end windows where the load changes, so power is taken to change here: to the left it is what
        held before the surrounding cell, to the right what held after it, both moved by the least that explains the
        reading at the cell's end.
        """
        k = min(max(bisect_right(self._times, moment), 1), len(self._times) - 1)
        t0, t1 = self._times[k - 1], self._times[k]
        asked, moment = moment, min(max(moment, t0), t1)
        left, right = self._held[max(k - 1, 0)], self._held[min(k + 1, len(self._held) - 1)]
        j0, j1 = self._joules[k - 1], self._joules[k]
        tau = self.sensor.smoothing
        if tau and t1 - t0 < self._gap and k >= 2:
            a = math.exp(-(t1 - t0) / tau)
            fade = math.exp(-(t1 - moment) / tau)
            weight_left, weight_right = fade - a, 1 - fade
            wrong = self._watts[k] - a * self._watts[k - 1] - weight_left * left - weight_right * right
            pull = wrong / (weight_left**2 + weight_right**2)
            left += pull * weight_left
            right += pull * weight_right
            from_left = j0 + left * (moment - t0)
            from_right = j1 - right * (t1 - moment)
            joules = min(max((from_left + from_right) / 2, j0), j1)
            unsure = abs(from_left - from_right) / 4
        else:
            joules = j0 + (j1 - j0) * (moment - t0) / (t1 - t0)
            unsure = 0.0
        if t1 - t0 >= self._gap:  # within a gap all that is known is its sum
            whole = j1 - j0 + self._shift_at(t1) - self._shift_at(t0)
            unsure = whole / (t1 - t0) * min(moment - t0, t1 - moment) / 2
        if self.sensor.average:
            unsure = max(unsure, self._swing(moment) * self.sensor.average / 8)
        share = (moment - t0) / (t1 - t0)
        variance = self._variance[k - 1] + (self._variance[k] - self._variance[k - 1]) * share
        edge = math.hypot(self.sensor.jitter * (right - left), unsure)
        return Point(joules, asked, variance, edge, self._held[k])

    def _swing(self, moment: float) -> float:
        """How much the readings differ that have this moment in their mean: what changed within is spread over all.

        A change of the load at this moment is off by an eighth of the averaged time, times the change.
        """
        reach = self.sensor.average
        around = self._watts[bisect_right(self._times, moment - reach) : bisect_right(self._times, moment + reach / 2)]
        return max(around) - min(around) if around else 0.0

    @property
    def source(self) -> Source:
        """What the curve rests on so far."""
        if self._base is None:
            return Source.INTEGRATED
        return Source.COUNTER_AND_SAMPLES if self.sensor.buffered else Source.COUNTER

    def between(self, begin: Point, end: Point) -> Estimate:
        """Energy between two points of this curve, and how far it may be off (95 %)."""
        joules = end.joules - begin.joules
        gain = self.sensor.gain * joules
        if self._base is not None:  # in the long run the counter holds the curve to within a step at either end
            gain = min(gain, self.counter_step * (begin.watts + end.watts))
        spread = math.sqrt(max(0.0, end.variance - begin.variance) + begin.edge**2 + end.edge**2)
        # Closer together than two or three readings, the two ends cannot be told apart: each blurs the other.
        near = self.CROWDED * max(self.sensor.spacing, self.sensor.average)
        crowded = max(0.0, 1 - (end.moment - begin.moment) / near)
        return Estimate(joules, gain + 2 * spread * (1 + 2 * crowded), self.source)


class CounterCurve:
    """The curve of a card that tells its energy counter and nothing else: straight lines between readings."""

    wants_counter = True

    def __init__(self, counter_step: float = 0.1) -> None:
        self.counter_step = counter_step
        self._times: list[float] = []
        self._joules: list[float] = []
        self._reset = 0.0

    def add_counter(self, moment: float, joules: float) -> None:
        """A reading of the energy counter."""
        if self._joules and joules + self._reset < self._joules[-1]:  # the driver was reloaded and counts from 0 again
            self._reset = self._joules[-1]
        self._times.append(moment)
        self._joules.append(joules + self._reset)
        if len(self._times) > 4096:
            del self._times[:2048], self._joules[:2048]

    @property
    def oldest(self) -> float:
        """Earliest moment that can be asked about, +inf before the first reading."""
        return self._times[0] if self._times else math.inf

    def covers(self, moment: float) -> bool:
        """Whether a reading at or after this moment is known."""
        return bool(self._times) and moment <= self._times[-1]

    def at(self, moment: float) -> Point:
        """The curve at a covered moment."""
        k = min(max(bisect_right(self._times, moment), 1), len(self._times) - 1)
        if k == 0:
            return Point(self._joules[0], moment)
        t0, t1 = self._times[k - 1], self._times[k]
        j0, j1 = self._joules[k - 1], self._joules[k]
        watts = (j1 - j0) / (t1 - t0) if t1 > t0 else 0.0
        share = min(max((moment - t0) / (t1 - t0), 0.0), 1.0) if t1 > t0 else 1.0
        # The step falls anywhere in counter_step before the reading; within the line power may have been anything.
        unsure = watts * (self.counter_step / math.sqrt(12) + min(moment - t0, t1 - moment, t1 - t0) / 2)
        return Point(j0 + (j1 - j0) * share, moment, 0.0, unsure, watts)

    def between(self, begin: Point, end: Point) -> Estimate:
        """Energy between two points of this curve, and how far it may be off (95 %)."""
        joules = end.joules - begin.joules
        least = self.counter_step * max(begin.watts, end.watts)  # a whole step may fall just inside or just outside
        return Estimate(joules, max(least, 2 * math.hypot(begin.edge, end.edge)), Source.COUNTER)
