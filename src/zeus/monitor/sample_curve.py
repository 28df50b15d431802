"""Power samples -> cumulative energy of one card. Pure: no clock, no device.

A sensor shows the card's power late and blurred. A step of the load appears `delay` seconds later and then rises as
through a first-order low-pass filter with time constant `smoothing`. Both can be undone. For such a filter, the power
that held between two samples y0 and y1, taken h seconds apart, is

    P = (y1 - a*y0) / (1 - a),   a = exp(-h / smoothing)

Cumulative energy is the sum of h*P. `docs/measuring.md` tells how the numbers of each sensor were found.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

Sample: TypeAlias = tuple[float, float]  # (time, watts)


@dataclass(frozen=True, slots=True)
class Sensor:
    """How power readings relate to the power that the card draws."""

    delay: float  # seconds until a change of the load begins to show
    smoothing: float  # time constant of the low-pass filter in seconds; 0: readings are instantaneous
    blur: float  # error of the energy between two readings, as a share of the change between them
    jitter: float  # error of the time stamps in seconds
    gain: float  # relative difference from the counter that remains in a long average
    spacing: float  # seconds from one reading to the next
    buffered: bool = False  # the driver keeps the readings, so none is missed
    average: float = 0.0  # each reading is the mean of this many seconds; 0: it is not a mean


# Fitted to the response of an H200's 20 ms buffer to loads switched at known times.
SAMPLE_BUFFER = Sensor(0.005, smoothing=0.0125, blur=0.15, jitter=0.003, gain=0.007, spacing=0.02, buffered=True)
POLLED = Sensor(delay=0.0, smoothing=0.0, blur=0.5, jitter=0.025, gain=0.02, spacing=0.05)
# Cards without instantaneous power report the mean of the last second: the power of about half a second ago.
AVERAGED = Sensor(delay=0.5, smoothing=0.0, blur=0.5, jitter=0.025, gain=0.02, spacing=0.05, average=1.0)


def buffer_sensor(spacing: float) -> Sensor:
    """The sensor behind a driver's buffer whose samples are this many seconds apart.

    The response is known for one spacing only. For any other, samples are joined by straight lines, and each may be
    the mean of the last 0.2 s, which is longer than any known sensor averages.
    """
    if 0.75 <= spacing / SAMPLE_BUFFER.spacing <= 1.5:
        return SAMPLE_BUFFER
    return replace(POLLED, jitter=spacing / 2, spacing=spacing, buffered=True, average=max(0.2, 2 * spacing))


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Cumulative energy at one moment, with what is needed to bound the difference of two points."""

    joules: float
    moment: float
    variance: float = 0.0  # of the energy so far; grows along the curve
    edge: float = 0.0  # standard error because the moment lies somewhere between two readings
    watts: float = 0.0
    missed: float = 0.0  # joules that may be wrong because the card was not read; grows along the curve
    behind: float = 0.0  # joules of the current correction that are not yet applied


def part_error(whole: float, part: float, seconds: float, ceiling: float) -> float:
    """Error of the energy of a part, if only the energy of the whole is known and power is taken as constant.

    The other part may have used all of it. Or this part did, up to what the card can draw in that time.
    """
    even = whole * part / seconds
    return max(even, min(whole, ceiling * part) - even)


def gap_error(joules: float, seconds: float, ceiling: float) -> float:
    """Error of an energy that is a guess: the card may have drawn anything from 0 to the ceiling."""
    return max(joules, ceiling * seconds - joules)


class SampleCurve:
    """Cumulative energy by the samples alone (`shape`), plus what the counter corrects (`correction`)."""

    KEEP = 30.0  # seconds of samples kept; older moments are no longer asked about
    GAP = 0.25  # seconds, at least: the power between readings further apart than this is unknown
    SPREAD = 10.0  # seconds over which a correction is worked off
    SAME = 0.0015  # seconds: drivers repeat the stamp of a sample with some microseconds of noise

    def __init__(self, sensor: Sensor, ceiling: float) -> None:
        self.sensor = sensor
        self.ceiling = ceiling
        self._gap = max(self.GAP, 3 * sensor.spacing)
        self._times: list[float] = []
        self._watts: list[float] = []  # as read
        self._held: list[float] = []  # _held[k]: power between readings k-1 and k, without the blur; _held[0] is unused
        self._joules: list[float] = []
        self._variance: list[float] = []
        self._missed: list[float] = []
        self._corrections = [(-math.inf, 0.0)]  # (moment, joules): the correction so far, linear in between
        self._gradual = (-math.inf, -math.inf, 0.0)  # (begin, end, joules): the correction that is being worked off

    def add(self, moment: float, watts: float) -> bool:
        """Add a reading, unless it is known already. True if it came after a gap."""
        time = moment - self.sensor.delay
        if not 0 <= watts <= self.ceiling or (self._times and time <= self._times[-1] + self.SAME):
            return False
        if not self._times:
            self._append(time, watts, watts, 0.0, 0.0, 0.0)
            return False
        h, before = time - self._times[-1], self._watts[-1]
        if self.sensor.smoothing and h < self._gap:
            a = math.exp(-h / self.sensor.smoothing)
            held = max(0.0, (watts - a * before) / (1 - a))
        else:
            held = (watts + before) / 2
        change = abs(watts - before)  # a small change is mostly noise, a large one mostly the load
        doubt = max(self.sensor.blur * change, min(0.9 * change, 0.01 * watts)) * h
        variance = self._variance[-1] + doubt * doubt
        self._append(time, watts, held, self._joules[-1] + held * h, variance, self._missed[-1])
        return h >= self._gap

    def _append(self, time: float, *values: float) -> None:
        columns = (self._times, self._watts, self._held, self._joules, self._variance, self._missed)
        for column, value in zip(columns, (time, *values), strict=True):
            column.append(value)
        old = bisect_right(self._times, time - self.KEEP) - 1
        if old > 512:  # in large pieces, so that it costs little
            for column in columns:
                del column[:old]

    @property
    def newest(self) -> float:
        """Moment of the newest reading, -inf before the first."""
        return self._times[-1] if self._times else -math.inf

    @property
    def oldest(self) -> float:
        """Earliest moment that can be asked about, +inf before the first reading."""
        return self._times[0] if self._times else math.inf

    def covers(self, moment: float) -> bool:
        """Whether later samples can no longer change the shape at this moment."""
        return len(self._times) >= 3 and moment < self._times[-2]

    # ------------------------------------------------------------------ corrections

    def correct(self, begin: float, end: float, joules: float) -> None:
        """Raise the curve by this much between two moments. It stays as it is before, and keeps the rise after."""
        now = self.correction(begin)
        while self._corrections[-1][0] >= begin:
            self._corrections.pop()
        self._corrections += [(begin, now), (end, now + joules)]
        if len(self._corrections) > 16:
            self._corrections = [(-math.inf, self._corrections[-9][1]), *self._corrections[-8:]]

    def correct_gradually(self, joules: float) -> None:
        """Raise the curve by this much over the next seconds, in place of any correction under way."""
        self._gradual = (self.newest, self.newest + self.SPREAD, joules)
        self.correct(*self._gradual)

    def widen(self, begin: float, end: float, joules: float) -> None:
        """Allow for an error of this much between two moments, neither of which has been read yet."""
        for k in range(bisect_right(self._times, begin), len(self._times)):
            self._missed[k] += joules * min(1.0, (self._times[k] - begin) / (end - begin))

    def widen_over_gap(self, begin: float, end: float) -> None:
        """Allow for anything that the card can draw between two moments."""
        self.widen(begin, end, gap_error(self.joules_between(begin, end), end - begin, self.ceiling))

    # ------------------------------------------------------------------ answers

    def at(self, moment: float) -> CurvePoint:
        """The corrected curve at a moment. A moment before the first reading is taken as the first reading."""
        point = self.shape(moment)
        begin, end, joules = self._gradual
        behind = joules * (end - moment) / (end - begin) if begin <= moment < end else 0.0
        return replace(point, joules=point.joules + self.correction(moment), behind=behind)

    def joules_between(self, begin: float, end: float) -> float:
        """Energy between two moments by the samples alone."""
        return self.shape(end).joules - self.shape(begin).joules

    def correction(self, moment: float) -> float:
        """Joules by which the curve is corrected at this moment."""
        knots = self._corrections
        if moment >= knots[-1][0]:
            return knots[-1][1]
        for (t0, j0), (t1, j1) in reversed(list(pairwise(knots))):
            if t0 <= moment < t1:
                return j0 if math.isinf(t0) else j0 + (j1 - j0) * (moment - t0) / (t1 - t0)
        return knots[0][1]

    def shape(self, moment: float) -> CurvePoint:
        """The curve by the samples alone.

        Windows mostly begin and end where the load changes, so power is taken to change at this moment. Before it, the
        power is that of the cell to the left; after it, that of the cell to the right. Both are moved by the least
        that explains the reading at the end of this cell.
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
        if t1 - t0 >= self._gap:  # only the energy of the whole gap is known
            whole = j1 - j0 + self.correction(t1) - self.correction(t0)
            unsure = part_error(whole, min(moment - t0, t1 - moment), t1 - t0, self.ceiling) / 2
        if self.sensor.average:
            unsure = max(unsure, self._swing(moment) * self.sensor.average / 8)
        share = (moment - t0) / (t1 - t0)
        variance = self._variance[k - 1] + (self._variance[k] - self._variance[k - 1]) * share
        missed = self._missed[k - 1] + (self._missed[k] - self._missed[k - 1]) * share
        edge = math.hypot(self.sensor.jitter * (right - left), unsure)
        return CurvePoint(joules, asked, variance, edge, self._held[k], missed)

    def _swing(self, moment: float) -> float:
        """Highest minus lowest of the readings whose mean includes this moment.

        A mean spreads a change of the load at this moment. The energy is then off by the change times an eighth of the
        averaged time.
        """
        reach = self.sensor.average
        around = self._watts[bisect_right(self._times, moment - reach) : bisect_right(self._times, moment + reach / 2)]
        return max(around) - min(around) if around else 0.0


# ------------------------------------------------------------------------------------------------ the driver's stamps


def spacing(samples: Sequence[Sample]) -> float:
    """The usual number of seconds between two samples in the driver's buffer, even if some are missing."""
    gaps = sorted(b - a for (a, _), (b, _) in pairwise(samples))
    return gaps[len(gaps) // 2] if gaps else SAMPLE_BUFFER.spacing


class StampMapper:
    """Moves samples to the monotonic clock. The driver stamps them with the wall clock, which may be stepped."""

    STEP = 0.002  # seconds: a smaller change of the offset is slewing, not a step
    RECENT = 1.0  # seconds: the newest sample in the buffer is not older than this

    def __init__(self) -> None:
        self._offset: float | None = None  # wall minus monotonic when last looked at
        self._last: float | None = None  # newest stamp seen, as stamped
        self.span = 0.0  # seconds that the driver's buffer held when last looked at

    def to_monotonic(self, samples: Sequence[Sample], now: float, wall: float) -> list[tuple[float, float]]:
        """The samples not seen before, on the monotonic clock.

        The buffer is in sampling order, so new samples come after the newest one seen, whatever their stamps. If the
        clock was stepped since the last look, there is one jump among the stamps. The stamps before the jump follow the
        old clock.
        """
        if not samples:
            return []
        offset, before = wall - now, self._offset
        self._offset = offset
        stepped = before is not None and abs(offset - before) > self.STEP
        if not stepped:
            self.span = samples[-1][0] - samples[0][0]
        new = samples
        if self._last is not None:
            seen = [i for i, (stamp, _) in enumerate(samples) if abs(stamp - self._last) < SampleCurve.SAME]
            new = samples[seen[-1] + 1 :] if seen else samples
        self._last = samples[-1][0]
        if not stepped or before is None:
            return [(stamp - offset, watts) for stamp, watts in new]
        jump = _jump(samples, offset - before)
        if jump == len(samples) and abs(samples[-1][0] - before - now) > self.RECENT:
            jump = 0  # the step came before the oldest sample: on the old clock the samples would not be recent
        first_on_new = jump - (len(samples) - len(new))
        return [(stamp - (before if i < first_on_new else offset), watts) for i, (stamp, watts) in enumerate(new)]


def _jump(samples: Sequence[Sample], step: float) -> int:
    """Index of the first sample stamped after the step: where the gap between two stamps is about as large as the step.

    If there is no such gap, no sample has been taken since.
    """
    gaps = [b - a for (a, _), (b, _) in pairwise(samples)]
    if not gaps:
        return 0
    nearest = min(range(len(gaps)), key=lambda i: abs(gaps[i] - step))
    return nearest + 1 if abs(gaps[nearest] - step) < abs(step) / 2 else len(samples)
