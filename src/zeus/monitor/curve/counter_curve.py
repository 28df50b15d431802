"""Cumulative energy of a card that reports its energy counter and no power. Pure: no clock, no device."""

from __future__ import annotations

import math
from bisect import bisect_right

from zeus.monitor.curve.sample_curve import CurvePoint, doubt_of_gap, doubt_of_part
from zeus.monitor.energy import EnergyEstimate, Source, estimate


class CounterCurve:
    """Cumulative energy over time: straight lines between the readings of the counter.

    >>> curve = CounterCurve()
    >>> for second in range(5):
    ...     curve.add_counter(second, 1e6 + 300.0 * second)
    >>> curve.between(curve.at(1.0), curve.at(3.0)).joules
    600.0
    """

    STILL = 10  # steps: a counter that does not move for longer is wrong, because a running card draws power
    wants_counter = True

    def __init__(self, counter_step: float = 0.1, ceiling: float = 5000.0) -> None:
        self.counter_step = counter_step
        self.ceiling = ceiling  # the card never draws more watts than this
        self._counter = math.nan  # the last reading
        self._seen = math.nan  # its moment
        self._times: list[float] = []
        self._joules: list[float] = []
        self._missed: list[float] = []

    def add_counter(self, moment: float, joules: float) -> None:
        """A reading of the energy counter. It is ignored if the counter has not moved."""
        if not math.isfinite(joules):
            return
        used, seen = joules - self._counter, self._seen
        self._counter, self._seen = joules, moment
        if not self._times:
            self._append(moment, 0.0, 0.0)
            return
        if used == 0:
            return
        seconds = moment - self._times[-1]
        most = self.ceiling * (seconds + self.counter_step)
        missed = 0.0
        stood = seen - self._times[-1] > self.STILL * self.counter_step
        if stood or not 0 < used <= most:  # it stood still, began at 0 again, or jumped
            used = joules if not stood and 0 <= joules <= most else self._watts(len(self._times) - 1) * seconds
            missed = doubt_of_gap(used, seconds, self.ceiling)
        elif joules <= most:  # so low that it may have begun at 0 unnoticed
            missed = doubt_of_gap(used, seconds, self.ceiling)
        self._append(moment, self._joules[-1] + used, self._missed[-1] + missed)

    def _append(self, moment: float, joules: float, missed: float) -> None:
        self._times.append(moment)
        self._joules.append(joules)
        self._missed.append(missed)
        if len(self._times) > 4096:
            del self._times[:2048], self._joules[:2048], self._missed[:2048]

    def _watts(self, k: int) -> float:
        """Mean power between readings k - 1 and k."""
        if k == 0 or self._times[k] <= self._times[k - 1]:
            return 0.0
        return (self._joules[k] - self._joules[k - 1]) / (self._times[k] - self._times[k - 1])

    @property
    def oldest(self) -> float:
        """Earliest moment that can be asked about, +inf before the first reading."""
        return self._times[0] if self._times else math.inf

    def covers(self, moment: float) -> bool:
        """Whether there is a reading at or after this moment."""
        return bool(self._times) and moment <= self._times[-1]

    def at(self, moment: float) -> CurvePoint:
        """The curve at a covered moment."""
        k = min(max(bisect_right(self._times, moment), 1), len(self._times) - 1)
        if k == 0:
            return CurvePoint(self._joules[0], moment)
        t0, t1 = self._times[k - 1], self._times[k]
        (j0, j1), (m0, m1) = self._joules[k - 1 : k + 1], self._missed[k - 1 : k + 1]
        watts = self._watts(k)
        if t1 <= t0:
            return CurvePoint(j1, moment, missed=m1)
        share = min(max((moment - t0) / (t1 - t0), 0.0), 1.0)
        # The counter lags by anything up to counter_step. Between two readings only the sum is known.
        part = max(0.0, min(moment - t0, t1 - moment))
        unsure = watts * self.counter_step / math.sqrt(12) + doubt_of_part(j1 - j0, part, t1 - t0, self.ceiling) / 2
        return CurvePoint(j0 + (j1 - j0) * share, moment, 0.0, unsure, watts, m0 + (m1 - m0) * share)

    def between(self, begin: CurvePoint, end: CurvePoint) -> EnergyEstimate:
        """Energy between two points of this curve, with its error bound (95 %)."""
        least = self.counter_step * max(begin.watts, end.watts)  # a whole step may fall just inside or outside
        error = max(least, 2 * math.hypot(begin.edge, end.edge))
        return estimate(begin, end, error, Source.COUNTER, self.ceiling)
