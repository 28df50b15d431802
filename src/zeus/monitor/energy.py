"""Counter readings and power samples -> joules with an error bound. Pure: no clock, no device.

A card's energy counter is right in the long run but moves in steps (100 ms on an H200), so two readings say little
about a short window. Its power samples (every 20 ms) show the shape but are slightly off. So the curve of cumulative
energy follows the samples and is kept within one counter step of the counter. A window is the difference of two points
on the curve. Points that have been read never change, so windows that tile an interval sum to it.

A counter can stand still, jump, or begin at 0 again, so each reading is compared with the samples. A reading that
contradicts them is a strike; one that agrees takes a strike away. The first two strikes anchor the curve anew. A
counter that steps away from the samples and back again contradicts them too. Each such step, which either of them may
have made, widens the error of the windows around it. The counter is always in one of four states:

    NoCounter ──reading──▶ Anchored ──gap in the samples──▶ Hole ──no reading for WAIT seconds──▶ NoCounter
                             │  ▲  ▲                        │  │
              third strike,  │  │  └────next reading────────┘  │
              or not read    ▼  │ no strike left               │
              any more      Broken ◀───third strike, or not read any more

NoCounter keeps the strikes from before the gap: if one is left after the reading, the counter is Broken.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from zeus.lazy import lazy_getattr
from zeus.monitor.sample_curve import CurvePoint, Sample, SampleCurve, Sensor, gap_error

__getattr__ = lazy_getattr(  # names of the existing package; this module itself stays pure
    __name__, {"Measurement": "zeus.monitor.measurement", "ZeusMonitor": "zeus.monitor.window"}
)


class Source(StrEnum):
    """How a number of joules was obtained."""

    COUNTER_AND_SAMPLES = "counter+samples"  # the counter, shaped by the driver's samples
    COUNTER = "counter"  # the counter, shaped by polled power if the card has it
    INTEGRATED = "integrated"  # power readings alone
    MODEL = "model"  # computed by a virtual card: exact
    UNAVAILABLE = "unavailable"  # the card reports neither energy nor power; the number is NaN


@dataclass(frozen=True, slots=True)
class EnergyEstimate:
    """Energy of a window with its 95 % half-width."""

    joules: float
    error: float
    source: Source


UNKNOWN = EnergyEstimate(math.nan, math.nan, Source.UNAVAILABLE)


def estimate(begin: CurvePoint, end: CurvePoint, error: float, source: Source, ceiling: float) -> EnergyEstimate:
    """Energy between two points; unknown if more of it was missed than measured."""
    joules, missed = end.joules - begin.joules, max(0.0, end.missed - begin.missed)
    if missed > max(joules, ceiling):  # up to one second at the ceiling is a short stall, which only widens the bound
        return UNKNOWN
    return EnergyEstimate(joules, error + missed, source)


@dataclass(frozen=True, slots=True)
class CounterReading:
    """A reading of the counter, with what the samples say at the same moment."""

    moment: float
    counter: float
    joules: float  # by the samples alone
    excess: float  # counter minus curve
    step: float  # joules by which the counter may lag, at the power of this moment
    lag: float  # the most by which it may lag
    variance: float  # of the samples' joules
    edge: float  # their standard error at this moment

    def follows(self, before: CounterReading) -> bool:
        """Whether the counter moved by half to twice what the samples say since an earlier reading."""
        counted, sampled = self.counter - before.counter, self.joules - before.joules
        slack = 2 * (self.step + before.step)
        return sampled / 2 - slack <= counted <= 2 * sampled + slack and counted >= 0

    def may_be_new(self, before: CounterReading, ceiling: float) -> bool:
        """Whether the counter is so low that it may have begun at 0 since an earlier reading."""
        return self.counter <= ceiling * (self.moment - before.moment)


@dataclass(frozen=True, slots=True)
class NoCounter:
    """There is no reading to compare the next one with. The curve follows the samples alone."""

    strikes: int = 0


@dataclass(frozen=True, slots=True)
class Anchored:
    """The counter has been trusted since `anchor`, and the curve is held to it."""

    anchor: CounterReading
    last: CounterReading
    strikes: int = 0
    jump: float = 0.0  # joules by which the counter last stepped away from the samples
    lag: float = 0.0  # the most by which any of its readings may lag, in joules

    @property
    def slack(self) -> float:
        """Joules by which the curve may leave the counter before anybody can see it."""
        return self.anchor.lag + max(self.lag, self.anchor.lag)


@dataclass(frozen=True, slots=True)
class Hole:
    """Samples are missing between two moments. The counter's next reading will say what was used there."""

    known: Anchored
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Broken:
    """The counter contradicts the samples or cannot be read any more. The curve follows the samples alone."""

    last: CounterReading
    strikes: int


class EnergyCurve(SampleCurve):
    """Cumulative energy of one card: the curve of its samples, held to its counter.

    >>> from zeus.monitor.sample_curve import SAMPLE_BUFFER
    >>> curve = EnergyCurve(SAMPLE_BUFFER)
    >>> curve.add_samples((0.02 * i, 300.0) for i in range(600))
    >>> window = curve.between(curve.at(1.0), curve.at(11.0))
    >>> round(window.joules, 6), window.source.value
    (3000.0, 'integrated')
    """

    ENOUGH = 20  # counter steps' worth of energy before the curve is bent towards the counter
    APART = 5  # counter steps, at least, between two readings that are compared
    STRIKES = 3
    WAIT = 5.0  # seconds of samples after a gap during which a reading can still fill it
    CROWDED = 2.5  # readings: the ends of a window shorter than this blur each other
    SURE = 3  # times the error of the samples: what differs by more than that is a step of the counter
    MOST_JUMPS = 256  # that are remembered

    def __init__(self, sensor: Sensor, counter_step: float = 0.1, ceiling: float = 5000.0) -> None:
        super().__init__(sensor, ceiling)
        self.counter_step = counter_step
        self._waiting: list[tuple[float, float]] = []  # counter readings that the samples have not caught up with
        self._counter: NoCounter | Anchored | Hole | Broken = NoCounter()
        self._jumps: deque[tuple[float, float, float]] = deque(maxlen=self.MOST_JUMPS)  # from, until, joules

    # ------------------------------------------------------------------ readings in

    def add_samples(self, samples: Iterable[Sample]) -> None:
        """Power readings (moment, watts), oldest first. Known and impossible ones are ignored."""
        for moment, watts in samples:
            before = self.newest
            if self.add(moment, watts):
                self._note_gap(before, self.newest)
            match self._counter:
                case Hole(known, _, end) if self.newest > end + self.WAIT:
                    self._go_on_without(NoCounter(known.strikes))
        self._settle()

    def add_counter(self, moment: float, joules: float, within: float = 0.0) -> None:
        """A reading of the energy counter, which may lag by up to one counter step.

        Args:
            moment: The middle of the call to the driver.
            joules: What the counter shows.
            within: Half of the time that the call took. The samples' own errors cover it here.
        """
        if math.isfinite(joules):
            self._waiting.append((moment, joules))
            self._settle()

    def give_up_on_counter(self) -> None:
        """The card no longer reports its counter: follow the samples alone."""
        match self._counter:
            case Anchored(_, last, strikes) | Hole(Anchored(_, last, strikes)):
                self._go_on_without(Broken(last, strikes))

    @property
    def wants_counter(self) -> bool:
        """Whether samples were missed, so that only a counter reading can say what was used meanwhile."""
        return isinstance(self._counter, Hole)

    def _note_gap(self, begin: float, end: float) -> None:
        match self._counter:
            case Anchored() as known:
                self._counter = Hole(known, begin, end)
            case Hole(known, first):
                self._counter = Hole(known, first, end)
            case NoCounter() | Broken():
                self.widen_over_gap(begin, end)

    def _settle(self) -> None:
        """Use the counter readings that the samples have caught up with."""
        while self._waiting and super().covers(self._waiting[0][0]):
            moment, counter = self._waiting.pop(0)
            match self._counter:
                case Hole(_, begin, end) if begin < moment <= end:
                    continue  # there are no samples here; the next reading fills the whole gap
                case Anchored(_, last) | Broken(last) if moment < last.moment + self.APART * self.counter_step:
                    continue  # too soon after the last one to compare them
            here = self.shape(moment)
            excess = counter - here.joules - self.correction(moment)
            step = self.counter_step * here.watts
            lag = max(step, self.joules_between(moment - self.counter_step, moment))  # the power may just have fallen
            self._count(CounterReading(moment, counter, here.joules, excess, step, lag, here.variance, here.edge))

    # ------------------------------------------------------------------ from state to state

    def _count(self, now: CounterReading) -> None:
        match self._counter:
            case NoCounter(strikes):
                self._counter = self._regain(now, strikes - 1)
            case Broken(last, strikes):
                self._counter = self._regain(now, strikes - 1 if now.follows(last) else min(strikes + 1, self.STRIKES))
            case Anchored() as known:
                self._counter = self._compare(known, now)
            case Hole(known, begin, end) if now.moment > end:
                self._counter = self._fill(known, begin, end, now)
            case Hole(known, begin, end):  # taken before the gap
                match self._compare(known, now):
                    case Anchored() as known:
                        self._counter = Hole(known, begin, end)
                    case Broken() as broken:
                        self.widen_over_gap(begin, end)
                        self._counter = broken

    def _regain(self, now: CounterReading, strikes: int) -> Anchored | Broken:
        return Broken(now, strikes) if strikes > 0 else Anchored(now, now)

    def _compare(self, known: Anchored, now: CounterReading) -> Anchored | Broken:
        """Bend the curve towards the counter if they differ by more than the counter's steps explain."""
        jump = self._jump(known.last, now)
        if not now.follows(known.last):
            return self._strike(known, now, jump)
        if jump:
            self._jumps.append((known.last.moment, now.moment + self.SPREAD, abs(jump)))
        if jump * known.jump < 0:  # it has stepped back
            self.correct_gradually(0.0)  # stops the correction that the first step asked for
            return self._strike(known, now, jump)
        anchor, strikes, lag = known.anchor, max(0, known.strikes - 1), max(known.lag, now.lag)
        if now.may_be_new(known.last, self.ceiling):
            return Anchored(now, now, strikes)
        low, high = anchor.excess - now.step, anchor.excess + anchor.step
        if now.joules - anchor.joules > self.ENOUGH * now.step and not low <= now.excess <= high:
            self.correct_gradually(now.excess - min(max(now.excess, low), high))
        return Anchored(anchor, now, strikes, jump or known.jump, lag)

    def _jump(self, last: CounterReading, now: CounterReading) -> float:
        """By how much the counter stepped away from the samples between two readings. 0 if their errors explain it."""
        sampled = now.joules - last.joules
        jump = now.counter - last.counter - sampled
        spread = math.sqrt(max(0.0, now.variance - last.variance) + now.edge**2 + last.edge**2)
        allowed = 2 * (now.lag + last.lag) + self.SURE * (self.sensor.gain * sampled + 2 * spread)
        return jump if abs(jump) > allowed else 0.0

    def _fill(self, known: Anchored, begin: float, end: float, now: CounterReading) -> Anchored | Broken:
        """Put what the counter says into the gap, if the card can have used that much."""
        anchor, last = known.anchor, known.last
        sampled = self.joules_between(begin, end)
        used = sampled + now.excess - anchor.excess
        slack = 2 * (now.step + last.step)
        possible = -slack <= used <= self.ceiling * (end - begin) + slack
        if now.counter <= last.counter or not possible or now.may_be_new(last, self.ceiling):
            self.widen_over_gap(begin, end)
            return self._strike(known, now)
        self.correct(begin, end, max(used, 0.0) - sampled)  # the curve never falls
        self.widen(begin, end, now.step + anchor.step)
        return Anchored(replace(anchor, joules=now.joules), now, max(0, known.strikes - 1), lag=max(known.lag, now.lag))

    def _strike(self, known: Anchored, now: CounterReading, jump: float = 0.0) -> Anchored | Broken:
        """A counter that lost its count is anchored anew. One that keeps contradicting the samples is broken."""
        strikes = known.strikes + 1
        if strikes < self.STRIKES:
            return Anchored(now, now, strikes, jump or known.jump)
        self.correct_gradually(0.0)
        return Broken(now, strikes)

    def _go_on_without(self, counter: NoCounter | Broken) -> None:
        if isinstance(self._counter, Hole):
            self.widen_over_gap(self._counter.begin, self._counter.end)
        self._counter = counter
        self.correct_gradually(0.0)  # stops the correction under way

    # ------------------------------------------------------------------ answers

    def covers(self, moment: float) -> bool:
        """Whether the curve is final at this moment."""
        if isinstance(self._counter, Hole) and moment > self._counter.begin:
            return False
        return super().covers(moment + self.sensor.average / 2)

    @property
    def source(self) -> Source:
        """What the curve is made from at present."""
        match self._counter:
            case Anchored() | Hole():
                return Source.COUNTER_AND_SAMPLES if self.sensor.buffered else Source.COUNTER
            case NoCounter() | Broken():
                return Source.INTEGRATED

    def between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        """Energy between two points of this curve, with its error bound (95 %)."""
        joules = end.joules - begin.joules
        gain = self.sensor.gain * joules
        match self._counter:
            case (Anchored() as known) | Hole(Anchored() as known) if begin.moment >= known.anchor.moment:
                gain = min(gain, max(known.slack, self.counter_step * (begin.watts + end.watts)))
        spread = math.sqrt(max(0.0, end.variance - begin.variance) + begin.edge**2 + end.edge**2)
        # Two ends within two or three readings cannot be told apart: each blurs the other.
        near = self.CROWDED * max(self.sensor.spacing, self.sensor.average)
        crowded = max(0.0, 1 - (end.moment - begin.moment) / near)
        error = gain + 2 * spread * (1 + 2 * crowded) + abs(end.behind - begin.behind)
        near_jumps = (size for since, until, size in self._jumps if since < end.moment and begin.moment < until)
        error += max(near_jumps, default=0.0)
        return estimate(begin, end, error, self.source, self.ceiling)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a counter showed at some moment of a call to the driver."""

    begin: float  # of the call
    end: float
    joules: float  # since the first reading
    missed: float = 0.0  # joules so far that may be wrong

    def share(self, moment: float, other: _Reading) -> float:
        """How much of the way to a later reading lies before this moment: 0 to 1."""
        seconds = other.end - self.begin
        return min(max((moment - self.begin) / seconds, 0.0), 1.0) if seconds > 0 else 1.0


class CounterCurve:
    """Cumulative energy of a card that reports its counter and no power.

    The counter lags by up to a step. So the energy up to a moment is at least what the counter showed then, and at most
    what it shows a step later. Nothing else is known but the card's ceiling, because power may change at any time.

    >>> curve = CounterCurve()
    >>> for second in range(5):
    ...     curve.add_counter(second, 1e6 + 300.0 * second)
    >>> round(curve.between(curve.at(1.0), curve.at(3.0)).joules, 6)
    600.0
    """

    KEEP = 2048  # readings, at least
    STILL = 10  # steps: a counter that does not move for longer is wrong, because a running card draws power
    wants_counter = True

    def __init__(self, counter_step: float = 0.1, ceiling: float = 5000.0) -> None:
        self.counter_step = counter_step
        self.ceiling = ceiling  # the card never draws more watts than this
        self._last = (math.nan, math.nan)  # moment and counter, whether or not the counter had moved
        self._watts = 0.0  # mean power between the two latest readings that differ
        self._readings: list[_Reading] = []  # those that differ

    def add_counter(self, moment: float, joules: float, within: float = 0.0) -> None:
        """A reading of the energy counter, as in `EnergyCurve`. It is ignored if the counter has not moved."""
        if not math.isfinite(joules):
            return
        (seen, counter), self._last = self._last, (moment, joules)
        if not self._readings:
            self._readings.append(_Reading(moment - within, moment + within, 0.0))
        elif joules != counter:
            last = self._readings[-1]
            seconds, used = moment + within - last.begin, joules - counter
            most = self.ceiling * (seconds + self.counter_step)
            stood = seen - last.end > self.STILL * self.counter_step
            is_wrong = stood or not 0 < used <= most  # it stood still, began at 0 again, or jumped
            if is_wrong:
                used = joules if not stood and 0 <= joules <= most else self._watts * seconds
            is_guess = is_wrong or joules <= most  # or so low that it may have begun at 0 unnoticed
            missed = gap_error(used, seconds + self.counter_step, self.ceiling) if is_guess else 0.0
            read = _Reading(moment - within, moment + within, last.joules + used, last.missed + missed)
            self._readings.append(read)
            self._watts = used / seconds if seconds > 0 else 0.0
            if len(self._readings) > 2 * self.KEEP:
                del self._readings[: self.KEEP]

    @property
    def oldest(self) -> float:
        """Earliest moment that can be asked about, +inf before the first reading."""
        return self._readings[0].end if self._readings else math.inf

    def covers(self, moment: float) -> bool:
        """Whether the counter has shown all that was used up to this moment."""
        return bool(self._readings) and moment + self.counter_step <= self._readings[-1].begin

    def at(self, moment: float) -> CurvePoint:
        """The curve at a covered moment: the line through the readings, within what they allow."""
        step, middle = self.counter_step, moment + self.counter_step / 2  # the counter is half a step late on average
        before, after, shown = self._last_until(moment), self._first_from(moment), self._first_from(moment + step)
        least = max(before.joules, after.joules - self.ceiling * (after.end - moment))
        most = min(shown.joules, before.joules + self.ceiling * (moment - before.begin + step))
        if shown.missed > before.missed:  # what was used in between is a guess
            least, most = before.joules, before.joules + self.ceiling * (moment - before.begin + step)
        first, second = self._last_until(middle), self._first_from(middle)
        joules = first.joules + (second.joules - first.joules) * first.share(middle, second)
        joules = min(max(joules, least), most)
        missed = before.missed + (after.missed - before.missed) * before.share(moment, after)
        return CurvePoint(joules, moment, edge=max(most - joules, joules - least), missed=missed)

    def _last_until(self, moment: float) -> _Reading:
        k = bisect_right(self._readings, moment, key=lambda reading: reading.end)
        return self._readings[max(k - 1, 0)]

    def _first_from(self, moment: float) -> _Reading:
        k = bisect_left(self._readings, moment, key=lambda reading: reading.begin)
        return self._readings[min(k, len(self._readings) - 1)]

    def between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        """Energy between two points of this curve, with the most by which it can be wrong."""
        return estimate(begin, end, begin.edge + end.edge, Source.COUNTER, self.ceiling)
