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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from zeus.monitor.sensors import Sensor


class Source(StrEnum):
    """How a number of joules was obtained."""

    COUNTER_AND_SAMPLES = "counter+samples"  # shaped by the driver's samples, anchored on the counter
    COUNTER = "counter"  # the counter, shaped by polled power where there is any
    INTEGRATED = "integrated"  # power readings alone
    MODEL = "model"  # a virtual card's own arithmetic: exact
    UNAVAILABLE = "unavailable"  # the card tells neither; the number is NaN


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The curve at one moment: joules since it began, and what is needed to bound a difference of two such points."""

    joules: float
    moment: float
    variance: float = 0.0  # of the energy so far, growing along the curve
    edge: float = 0.0  # standard error from where exactly between two readings this moment lies
    watts: float = 0.0
    missed: float = 0.0  # joules by which the energy so far may be off because nobody read the card, growing too
    behind: float = 0.0  # joules that the curve has yet to be bent by, towards the counter


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    """Energy of a window with its 95 % half-width."""

    joules: float
    error: float
    source: Source


UNKNOWN = EnergyEstimate(math.nan, math.nan, Source.UNAVAILABLE)


def estimate(begin: CurvePoint, end: CurvePoint, error: float, source: Source, ceiling: float) -> EnergyEstimate:
    """Energy between two points. Where more of it was missed than is known of it, it is unknown."""
    joules, missed = end.joules - begin.joules, max(0.0, end.missed - begin.missed)
    if missed > max(joules, ceiling):  # below one second at the ceiling it is a short stall, and only a wide bound
        return UNKNOWN
    return EnergyEstimate(joules, error + missed, source)


def doubt_of_part(whole: float, part: float, seconds: float, ceiling: float) -> float:
    """How far the energy of a part of a stretch may be off, if only the whole is known and power is taken as constant.

    All of it may have been used in the other part; or in this one, as far as the card can draw so much in it.
    """
    even = whole * part / seconds
    return max(even, min(whole, ceiling * part) - even)


def doubt_of_gap(joules: float, seconds: float, ceiling: float) -> float:
    """How far these joules may be off for a time of which nothing is known but what the card can draw."""
    return max(joules, ceiling * seconds - joules)


@dataclass(frozen=True, slots=True)
class _Count:
    """A reading of the counter, beside what the samples say at that moment."""

    moment: float
    counter: float
    joules: float  # of the samples alone
    excess: float  # counter minus curve
    step: float  # joules that the counter may lag behind

    def follows(self, before: _Count) -> bool:
        """Whether the counter moved as the samples say since an earlier reading: by half as much to twice as much."""
        counted, sampled = self.counter - before.counter, self.joules - before.joules
        slack = 2 * (self.step + before.step)
        return sampled / 2 - slack <= counted <= 2 * sampled + slack and counted >= 0

    def may_be_new(self, before: _Count, ceiling: float) -> bool:
        """Whether the counter is so low that it may have begun at 0 since an earlier reading, and nobody could tell."""
        return self.counter <= ceiling * (self.moment - before.moment)


class EnergyCurve:
    """Cumulative energy of one card over time.

    >>> from zeus.monitor.sensors import SAMPLE_BUFFER
    >>> curve = EnergyCurve(SAMPLE_BUFFER)
    >>> curve.add_samples((0.02 * i, 300.0) for i in range(600))
    >>> window = curve.between(curve.at(1.0), curve.at(11.0))
    >>> round(window.joules, 6), window.source.value
    (3000.0, 'integrated')
    """

    KEEP = 30.0  # seconds of samples kept; what is older has been read or never will be
    GAP = 0.25  # at least; readings further apart do not know what happened in between: the counter does
    ENOUGH = 20  # counter steps' worth of energy before the curve is bent towards the counter
    APART = 5  # counter steps from one reading to the next that it is compared with
    STRIKES = 3  # readings of the counter at odds with the samples before it is given up, and at one before it is back
    WAIT = 5.0  # seconds of samples after a gap in which the counter may say what was used in it
    SPREAD = 10.0  # seconds over which a disagreement with the counter is worked off
    CROWDED = 2.5  # readings: windows shorter than this have ends that blur each other
    SAME = 0.0015  # seconds: drivers restate the stamp of a sample with some microseconds of noise

    def __init__(self, sensor: Sensor, counter_step: float = 0.1, ceiling: float = 5000.0) -> None:
        self.sensor = sensor
        self.counter_step = counter_step
        self.ceiling = ceiling  # watts that the card never draws more than
        self._gap = max(self.GAP, 3 * sensor.spacing)
        self._times: list[float] = []
        self._watts: list[float] = []  # as read
        self._held: list[float] = []  # _held[k]: power between reading k-1 and k, blur undone; _held[0] is unused
        self._joules: list[float] = []
        self._variance: list[float] = []
        self._missed: list[float] = []
        self._shift = [(-math.inf, 0.0)]  # (moment, joules): correction towards the counter, linear in between
        self._work = (-math.inf, -math.inf, 0.0)  # (begin, end, joules) of the correction that is being worked off
        self._waiting: list[tuple[float, float]] = []  # counter readings not yet covered by samples
        self._anchor: _Count | None = None  # the reading that the curve is held to; None: the counter is not trusted
        self._anchored = math.inf  # since when the counter has been trusted without a break
        self._last: _Count | None = None
        self._strikes = 0
        self._hole: tuple[float, float] | None = None  # a gap in the samples that the counter has yet to fill

    # ------------------------------------------------------------------ facts in

    def add_samples(self, samples: Iterable[tuple[float, float]]) -> None:
        """Power readings (moment, watts), oldest first; those already known are passed over."""
        for moment, watts in samples:
            time = moment - self.sensor.delay
            if not 0 <= watts <= self.ceiling:
                continue
            if not self._times:
                self._append(time, watts, watts, 0.0, 0.0, 0.0)
            elif time > self._times[-1] + self.SAME:
                self._extend(time, watts)
        self._settle()

    def add_counter(self, moment: float, joules: float) -> None:
        """A reading of the energy counter; it speaks of up to one counter step earlier."""
        if math.isfinite(joules):
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
        missed = self._missed[-1]
        if h >= self._gap and self._anchor is not None:
            self._hole = (self._hole[0] if self._hole else self._times[-1], time)
        elif h >= self._gap:
            missed += doubt_of_gap(held * h, h, self.ceiling)
        self._append(time, watts, held, self._joules[-1] + held * h, self._variance[-1] + doubt * doubt, missed)
        if self._hole is not None and time > self._hole[1] + self.WAIT:
            self._last = None  # what the counter counted meanwhile is compared with nothing
            self.give_up_on_counter()

    def _append(self, time: float, watts: float, held: float, joules: float, variance: float, missed: float) -> None:
        self._times.append(time)
        self._watts.append(watts)
        self._held.append(held)
        self._joules.append(joules)
        self._variance.append(variance)
        self._missed.append(missed)
        old = bisect_right(self._times, time - self.KEEP) - 1
        if old > 512:  # now and then, so that it costs nothing
            for column in (self._times, self._watts, self._held, self._joules, self._variance, self._missed):
                del column[:old]

    # ------------------------------------------------------------------ the counter's word

    def _settle(self) -> None:
        """Work in the counter readings that the samples have caught up with."""
        while self._waiting and self._sampled(self._waiting[0][0]):
            moment, counter = self._waiting.pop(0)
            if self._hole is not None and self._hole[0] < moment <= self._hole[1]:
                continue  # the samples say nothing there: the next reading fills the gap as a whole
            if (
                self._hole is None
                and self._last is not None
                and moment < self._last.moment + self.APART * self.counter_step
            ):
                continue  # too soon after the last to tell whether it moves as it should
            here = self._shape(moment)
            step = self.counter_step * here.watts
            self._count(_Count(moment, counter, here.joules, counter - here.joules - self._shift_at(moment), step))

    def _count(self, now: _Count) -> None:
        before, self._last = self._last, now
        is_new = before is not None and now.may_be_new(before, self.ceiling)
        if before is None:
            follows = True
        elif self._hole is not None and now.moment > self._hole[1]:
            follows = self._fill_hole(before, now)
        else:
            follows = now.follows(before)
        self._strikes = max(0, self._strikes - 1) if follows else min(self.STRIKES, self._strikes + 1)
        if self._strikes == self.STRIKES:  # some cards' counters stand still: the samples know better
            self.give_up_on_counter()
        elif is_new or not follows or self._anchor is None:
            if self._anchor is not None or not self._strikes:  # it lost its count; or it is new, or right again
                self._anchor, self._anchored = now, now.moment
        else:
            self._follow(now, self._anchor)

    def _follow(self, now: _Count, anchor: _Count) -> None:
        """Bend the curve towards the counter, where they are further apart than the counter's steps explain."""
        low, high = anchor.excess - now.step, anchor.excess + anchor.step
        if now.joules - anchor.joules > self.ENOUGH * now.step and not low <= now.excess <= high:
            self._work_off(now.excess - min(max(now.excess, low), high))

    def _fill_hole(self, before: _Count, now: _Count) -> bool:
        """Put what the counter says into the gap in the samples, if the card can have used that."""
        assert self._hole is not None and self._anchor is not None  # there is no hole without an anchor
        begin, end = self._hole
        sampled = self._shape(end).joules - self._shape(begin).joules
        used = sampled + now.excess - self._anchor.excess
        slack = 2 * (now.step + before.step)
        possible = -slack <= used <= self.ceiling * (end - begin) + slack
        if now.counter <= before.counter or not possible or now.may_be_new(before, self.ceiling):
            self._leave_hole()
            return False
        self._bend(begin, end, max(used, 0.0) - sampled)  # the curve never falls
        self._doubt(begin, end, now.step + self._anchor.step)
        self._hole, self._anchor = None, replace(self._anchor, joules=now.joules)
        return True

    def _leave_hole(self) -> None:
        """Nobody will say what was used in the gap: it may have been anything that the card can draw."""
        assert self._hole is not None
        begin, end = self._hole
        self._hole = None
        joules = self._shape(end).joules - self._shape(begin).joules
        self._doubt(begin, end, doubt_of_gap(joules, end - begin, self.ceiling))

    def _doubt(self, begin: float, end: float, joules: float) -> None:
        """So much more or less may have been used between two moments that nobody has read yet."""
        for k in range(bisect_right(self._times, begin), len(self._times)):
            self._missed[k] += joules * min(1.0, (self._times[k] - begin) / (end - begin))

    def give_up_on_counter(self) -> None:
        """From here on the readings of power are all there is, until the counter follows them again."""
        self._anchor, self._anchored = None, math.inf
        if self._hole is not None:
            self._leave_hole()
        if self._times:
            self._work_off(0.0)

    def _work_off(self, joules: float) -> None:
        """Move the curve by this much over the next seconds; what it was to be moved by before is part of that."""
        newest = self._times[-1]
        self._work = (newest, newest + self.SPREAD, joules)
        self._bend(*self._work)

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

    def at(self, moment: float) -> CurvePoint:
        """The curve at a covered moment (a moment before the first reading is taken as the first reading)."""
        point = self._shape(moment)
        begin, end, joules = self._work
        behind = joules * (end - moment) / (end - begin) if begin <= moment < end else 0.0
        return replace(point, joules=point.joules + self._shift_at(moment), behind=behind)

    def _shape(self, moment: float) -> CurvePoint:
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
            unsure = doubt_of_part(whole, min(moment - t0, t1 - moment), t1 - t0, self.ceiling) / 2
        if self.sensor.average:
            unsure = max(unsure, self._swing(moment) * self.sensor.average / 8)
        share = (moment - t0) / (t1 - t0)
        variance = self._variance[k - 1] + (self._variance[k] - self._variance[k - 1]) * share
        missed = self._missed[k - 1] + (self._missed[k] - self._missed[k - 1]) * share
        edge = math.hypot(self.sensor.jitter * (right - left), unsure)
        return CurvePoint(joules, asked, variance, edge, self._held[k], missed)

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
        if self._anchor is None:
            return Source.INTEGRATED
        return Source.COUNTER_AND_SAMPLES if self.sensor.buffered else Source.COUNTER

    def between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        """Energy between two points of this curve, and how far it may be off (95 %)."""
        joules = end.joules - begin.joules
        gain = self.sensor.gain * joules
        if begin.moment >= self._anchored:  # in the long run the counter holds the curve to within a step at either end
            gain = min(gain, self.counter_step * (begin.watts + end.watts))
        spread = math.sqrt(max(0.0, end.variance - begin.variance) + begin.edge**2 + end.edge**2)
        # Closer together than two or three readings, the two ends cannot be told apart: each blurs the other.
        near = self.CROWDED * max(self.sensor.spacing, self.sensor.average)
        crowded = max(0.0, 1 - (end.moment - begin.moment) / near)
        error = gain + 2 * spread * (1 + 2 * crowded) + abs(end.behind - begin.behind)
        return estimate(begin, end, error, self.source, self.ceiling)
