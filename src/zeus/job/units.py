"""What a unit of training (a step, an epoch, an evaluation) uses at each power limit, cold and steady.

`Units` is built from the stretches of trials of one batch size on the same GPUs, oldest first. Estimates of epoch
costs, of power limits and of the default use it, so each new run improves them.

A cold unit belongs to the first epoch of a process, in which libraries load and kernels are chosen. It is not compared
with steady units, unless the two were measured to agree at one limit. Then they are counted together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import repeat
from typing import NamedTuple

from zeus.cost import ONE, ZERO, Use
from zeus.job.scatter import Scatter
from zeus.job.trial import Kind, Stretch

AGREE = 0.05  # cold and steady units that differ by no more than this share are the same
NEWEST = 5  # trials that count for a unit's use: older ones may have used other data
UNKNOWN_SPREAD = 0.05  # assumed relative scatter of a unit if no data show it


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit uses on average."""

    use: Use
    error: Use  # standard error; NaN if unknown
    count: int  # units behind the mean


@dataclass(frozen=True, slots=True)
class Ratio:
    """What a unit uses at one limit divided by what it uses at another."""

    factor: Use
    error: Use  # standard error
    cold: bool = False  # from cold units only


SAME = Ratio(ONE, ZERO)


class _Row(NamedTuple):
    """The units of one sort (cold or steady), in one trial or in several."""

    units: int
    joules: float
    seconds: float
    looks: int
    joules_squares: float
    seconds_squares: float

    def plus(self, other: _Row) -> _Row:
        return _Row(
            self.units + other.units,
            self.joules + other.joules,
            self.seconds + other.seconds,
            self.looks + other.looks,
            self.joules_squares + other.joules_squares,
            self.seconds_squares + other.seconds_squares,
        )

    @property
    def each(self) -> Use:
        return Use(self.joules / self.units, self.seconds / self.units)


_Sorts = tuple[bool, ...]  # True: cold units, False: steady units
_Rows = dict[int, _Row]  # by index of the trial, oldest first


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one batch size on one set of GPUs.

    >>> def run(*rows):
    ...     return [Stretch.of(Kind.EPOCH, limit, cold, n, n * joules, n * 1.0) for limit, cold, n, joules in rows]
    >>> book = Units.of([run((250.0, True, 1, 500.0), (250.0, False, 1, 100.0), (150.0, False, 3, 80.0))])
    >>> book.ratio(Kind.EPOCH, 250.0, 150.0).factor.joules, book.unit(Kind.EPOCH, 150.0).use.joules
    (1.25, 80.0)
    """

    _rows: dict[tuple[Kind, float, bool], _Rows]
    _growth: tuple[Use, ...] = ()  # of each trial; empty: the data have not grown
    _scatters: dict[tuple[Kind, bool, bool], Use | None] = field(default_factory=dict, compare=False, repr=False)
    _gaps: dict[Kind, Use | None] = field(default_factory=dict, compare=False, repr=False)
    _ratios: dict[tuple[Kind, float, float, bool], Ratio | None] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(cls, trials: Iterable[Sequence[Stretch]], growth: Iterable[Use] = ()) -> Units:
        """The units of these trials. Stretches of unknown energy or limit are left out.

        Args:
            trials: The stretches of each trial, oldest first.
            growth: For each trial, what an epoch uses today divided by what it used then, as data grow. Default: 1.
        """
        rows: dict[tuple[Kind, float, bool], _Rows] = {}
        grown = tuple(growth)
        for trial, (stretches, by) in enumerate(zip(trials, grown or repeat(ONE), strict=False)):
            for one in stretches:
                if one.limit_watts is None or not one.joules or not one.seconds:
                    continue
                row = _Row(one.count, one.joules, one.seconds, one.looks, one.joules_squares, one.seconds_squares)
                if one.kind is Kind.EPOCH and by != ONE:
                    row = row._replace(
                        joules=row.joules * by.joules,
                        seconds=row.seconds * by.seconds,
                        joules_squares=row.joules_squares * by.joules**2,
                        seconds_squares=row.seconds_squares * by.seconds**2,
                    )
                sort = rows.setdefault((one.kind, one.limit_watts, one.cold), {})
                sort[trial] = sort[trial].plus(row) if trial in sort else row
        return cls(rows, grown)

    def limits(self, kind: Kind) -> tuple[float, ...]:
        """The power limits at which such units ran, highest first."""
        return tuple(sorted({limit for one, limit, _ in self._rows if one is kind}, reverse=True))

    def unit(self, kind: Kind, limit: float, cold: bool | None = None) -> Unit | None:
        """The mean unit at this limit over the newest trials that have one; None if none does.

        Args:
            kind: Which unit.
            limit: The power limit, in watts.
            cold: True: only cold units. False: only steady units. None: steady units, and cold ones if they agree.
        """
        if cold is not None:
            sorts: _Sorts = (cold,)
        else:
            sorts = (False, True) if self.is_pooled(kind) else (False,)
        rows = self._at(kind, limit, sorts)
        if not rows:
            return None
        total = _newest(rows)
        each = total.each
        error = each * self._one(kind, sorts, across=False).times(total.units**-0.5)
        return Unit(each, error, total.units)

    def is_pooled(self, kind: Kind) -> bool:
        """Whether cold and steady units agreed when they were last compared at one limit."""
        gap = self._gap(kind)
        return gap is not None and gap.within(AGREE)

    def ratio(self, kind: Kind, top: float, limit: float, *, cold: bool = False) -> Ratio | None:
        """What a unit uses at `top`, divided by what it uses at `limit`; None if unknown.

        Units of the same trial are preferred, as other trials may have used other data. Steady units are preferred to
        cold ones, or the reverse if `cold`.
        """
        if top == limit:
            return SAME
        asked = (kind, top, limit, cold)
        if asked not in self._ratios:
            self._ratios[asked] = self._compare(kind, top, limit, cold)
        return self._ratios[asked]

    def spread(self, kind: Kind) -> Use | None:
        """Relative standard deviation of one unit, pooled over all limits; None if unknown.

        Steady units are preferred, because the steps of a first epoch change while it warms up. If each trial
        measured only once, the deviation is taken between trials.
        """
        ways = ((cold, across) for across in (False, True) for cold in (False, True))
        known = (self._scatter(kind, cold, across) for cold, across in ways)
        return next((one for one in known if one is not None), None)

    def _compare(self, kind: Kind, top: float, limit: float, cold_first: bool) -> Ratio | None:
        gap = self._gap(kind)
        ways: list[tuple[_Sorts, Use]] = [((cold_first,), ZERO), ((not cold_first,), ZERO)]
        if gap is not None and gap.within(AGREE):
            ways.insert(1, ((False, True), gap))
        for sorts, gap_error in ways:
            high, low = self._at(kind, top, sorts), self._at(kind, limit, sorts)
            both = sorted(high.keys() & low.keys())[-NEWEST:]
            if both:
                factor, weight = _within_trials([(high[trial], low[trial]) for trial in both])
            elif high and low:
                factor, weight = _between_trials(_newest(high), _newest(low))
            else:
                continue
            cold = sorts == (True,)
            if cold and _is_slower(factor.seconds, top, limit):
                continue
            error = self._one(kind, sorts, across=not both).times(weight**-0.5).hypot(gap_error) * factor
            return Ratio(factor, error, cold)
        return None

    def _at(self, kind: Kind, limit: float, sorts: _Sorts) -> _Rows:
        some = [rows for cold in sorts if (rows := self._rows.get((kind, limit, cold)))]
        if len(some) < 2:
            return some[0] if some else {}
        pooled = dict(some[0])
        for trial, row in some[1].items():
            pooled[trial] = pooled[trial].plus(row) if trial in pooled else row
        return dict(sorted(pooled.items()))

    def _one(self, kind: Kind, sorts: _Sorts, *, across: bool) -> Use:
        """Relative scatter of units of these sorts; 5 % if unknown."""
        ways = [(cold, way) for cold in sorts for way in ((False, True) if across else (False,))]
        known = [one for way in ways if (one := self._scatter(kind, *way)) is not None]
        if known:
            return reduce(Use.most, known)
        return self.spread(kind) or Use(UNKNOWN_SPREAD, UNKNOWN_SPREAD)

    def _gap(self, kind: Kind) -> Use | None:
        """Relative difference of cold and steady units in the newest trial that had both at one limit."""
        if kind not in self._gaps:
            newest, found = -1, None
            for one, limit, cold in self._rows:
                steady = self._rows.get((kind, limit, False), {}) if one is kind and cold else {}
                first = self._rows[one, limit, cold]
                trial = max(steady.keys() & first.keys(), default=-1)
                if trial >= max(newest, 0):
                    gap = abs(first[trial].each / steady[trial].each - ONE)
                    found = gap.most(found) if found is not None and trial == newest else gap
                    newest = trial
            self._gaps[kind] = found
        return self._gaps[kind]

    def _scatter(self, kind: Kind, cold: bool, across: bool) -> Use | None:
        """Relative scatter of units within trials, or across trials, pooled over all limits.

        Trials with different growth of data are not compared, because the growth was derived from the same units.
        """
        asked = (kind, cold, across)
        if asked not in self._scatters:
            some = [rows for (one, _, sort), rows in self._rows.items() if one is kind and sort is cold]
            groups = (group for rows in some for group in (self._alike(rows) if across else rows.values()))
            self._scatters[asked] = _pooled(groups)
        return self._scatters[asked]

    def _alike(self, rows: _Rows) -> Iterable[_Row]:
        """The sums over trials with the same growth of data."""
        sums: dict[Use, _Row] = {}
        for trial, row in rows.items():
            by = self._growth[trial] if self._growth else ONE
            sums[by] = sums[by].plus(row) if by in sums else row
        return sums.values()


def _pooled(rows: Iterable[_Row]) -> Use | None:
    joules, seconds, freedom = 0.0, 0.0, 0
    for row in rows:
        if row.looks > 1:
            each = row.each
            joules += max(0.0, row.joules_squares / each.joules**2 - row.units)
            seconds += max(0.0, row.seconds_squares / each.seconds**2 - row.units)
            freedom += row.looks - 1
    return Scatter(Use(joules, seconds), freedom).deviation


def _within_trials(pairs: Iterable[tuple[_Row, _Row]]) -> tuple[Use, float]:
    """The mean of each trial's own ratio, weighted by its units, and the sum of the weights."""
    joules = seconds = weights = 0.0
    for high, low in pairs:
        ratio, weight = _between_trials(high, low)
        joules += weight * math.log(ratio.joules)
        seconds += weight * math.log(ratio.seconds)
        weights += weight
    return Use(math.exp(joules / weights), math.exp(seconds / weights)), weights


def _between_trials(high: _Row, low: _Row) -> tuple[Use, float]:
    return high.each / low.each, high.units * low.units / (high.units + low.units)


def _is_slower(seconds: float, top: float, limit: float) -> bool:
    """Whether the higher limit seems slower. It never is: then the difference is warm-up."""
    return seconds > 1 + AGREE if top > limit else seconds < 1 / (1 + AGREE)


def _newest(rows: _Rows) -> _Row:
    """The sum over the newest trials."""
    return reduce(_Row.plus, list(rows.values())[-NEWEST:])
