"""What a unit of training (a step, an epoch, an evaluation) uses at each power limit, cold and steady.

`Units` is built from the stretches of trials of one batch size on the same GPUs, oldest first. Whoever needs the use of
an epoch or the best limit asks it, or moves a run to another limit (`zeus.ledger.moving`), so each new run improves all
of them.

A cold unit belongs to the first epoch of a process, in which libraries load and kernels are chosen. It is not compared
with steady units, unless the two were measured to agree at one limit. Then they are counted together.

Ratios between limits follow from one model, in logarithms and in joules and seconds alike:

    log use of a unit = limit + run + scatter / √units

The effect of a run is free where runs have several limits in common, directly or through others. Where only different
runs can be compared, it is random, with the deviation that runs have.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from zeus.cost import ONE, ZERO, Use
from zeus.job import Kind, UsageSegment
from zeus.profile import PowerProfile

UNITS = (Kind.STEP, Kind.EPOCH)
AGREE = 0.05  # cold and steady units that differ by no more than this share are the same
NEWEST = 5  # trials that count for a unit's use: older ones may have used other data
LATEST = 40  # trials that count for the ratio of two limits
SCATTER, WORTH = 0.03, 3.0  # assumed relative scatter of a unit within a run, and how many measurements that is worth
DRIFT = 0.01  # relative error of a mean that no number of units makes smaller

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Spread:
    """Squared deviations of samples from the mean of their group, summed over groups.

    >>> few = Spread.of([9.0, 11.0])
    >>> few.freedom, round(few.deviation(prior=1.0, worth=3.0), 2), round(Spread().deviation(1.0, 3.0), 2)
    (1.0, 1.57, 1.62)
    """

    squares: float = 0.0
    freedom: float = 0.0  # samples less groups

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of one group, which is not empty."""
        mean = sum(samples) / len(samples)
        return cls(sum((one - mean) ** 2 for one in samples), len(samples) - 1.0)

    def __add__(self, other: Spread) -> Spread:
        return Spread(self.squares + other.squares, self.freedom + other.freedom)

    def deviation(self, prior: float, worth: float) -> float:
        """Standard deviation of one sample, given a prior that counts like `worth` samples.

        It is widened as Student's t is, so that two of it hold 95 % although it is known from few samples.
        """
        known = worth + self.freedom
        return math.sqrt((prior**2 * worth + self.squares) / known) / (1 - 1.15 / known)


UNSEEN = Spread().deviation(SCATTER, WORTH)  # relative scatter of a unit, before any is seen: 5 %
UNSEEN_BOTH = Use(UNSEEN, UNSEEN)
RUNS = 3.0  # how many runs the assumed deviation between runs is worth
NOISE = (0.04, 0.055)  # assumed deviation of a unit between runs, in joules and seconds
BETWEEN = Use(*(Spread().deviation(prior, RUNS) for prior in NOISE))  # the same, widened: 6.5 and 9 %


@dataclass(frozen=True, slots=True)
class Unit:
    """What one unit uses on average."""

    use: Use
    error: Use  # standard error, within runs
    count: int  # units behind the mean


@dataclass(frozen=True, slots=True)
class Ratio:
    """What a unit uses at one limit divided by what it uses at another."""

    factor: Use
    error: Use  # standard error
    cold: bool = False  # from cold units only


SAME = Ratio(ONE, ZERO)


class Row(NamedTuple):
    """The units of one sort (cold or steady), in one trial or in several."""

    units: int
    joules: float
    seconds: float
    measurements: int
    joules_squares: float
    seconds_squares: float

    @classmethod
    def of(cls, uses: Sequence[tuple[float, float]]) -> Row:
        """Units with these joules and seconds; how they scatter is left out."""
        joules, seconds = (sum(part) for part in zip(*uses, strict=True))
        return cls(len(uses), joules, seconds, 1, 0.0, 0.0)

    def plus(self, other: Row) -> Row:
        return Row(
            self.units + other.units,
            self.joules + other.joules,
            self.seconds + other.seconds,
            self.measurements + other.measurements,
            self.joules_squares + other.joules_squares,
            self.seconds_squares + other.seconds_squares,
        )

    @property
    def each(self) -> Use:
        return Use(self.joules / self.units, self.seconds / self.units)


_Sorts = tuple[bool, ...]  # True: cold units, False: steady units
_Rows = dict[int, Row]  # by index of the trial, oldest first


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one batch size on one set of GPUs.

    >>> def run(*rows):
    ...     return [UsageSegment.of(Kind.EPOCH, limit, cold, n, n * joules, n * 1.0) for limit, cold, n, joules in rows]
    >>> book = Units.of([run((250.0, True, 1, 500.0), (250.0, False, 1, 100.0), (150.0, False, 3, 80.0))])
    >>> round(book.ratio(Kind.EPOCH, 250.0, 150.0).factor.joules, 3), book.unit(Kind.EPOCH, 150.0).use.joules
    (1.25, 80.0)
    """

    _rows: dict[tuple[Kind, float, bool], _Rows]
    _between: Use = BETWEEN  # relative deviation between runs
    _profile: Units | None = None  # steps of a power profile, for limits at which no unit ran
    _ratios: dict[tuple[Kind, float, _Sorts], dict[float, Ratio]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @classmethod
    def of(
        cls,
        trials: Iterable[Sequence[UsageSegment]],
        growth: Sequence[float] = (),
        between: Use = BETWEEN,
        profile: PowerProfile | None = None,
    ) -> Units:
        """The units of these trials. Stretches of unknown energy or limit are left out.

        Args:
            trials: The stretches of each trial, oldest first.
            growth: For each trial, what an epoch uses today divided by what it used then, as data grow. Default: 1.
            between: Relative deviation of a unit between runs.
            profile: A power profile of the same batch size and GPUs. A single step of it is too little to count.
        """
        rows: dict[tuple[Kind, float, bool], _Rows] = {}
        for trial, stretches in enumerate(trials):
            for one in stretches:
                if one.limit_watts is None or not (one.joules or 0.0) / one.count > 0 < one.seconds / one.count:
                    continue
                by = growth[trial] if growth and one.kind is Kind.EPOCH else 1.0
                use, squares = use_of(one).times(by), Use(one.joules_squares, one.seconds_squares).times(by**2)
                row = Row(one.count, use.joules, use.seconds, one.measurements, squares.joules, squares.seconds)
                sort = rows.setdefault((one.kind, one.limit_watts, one.cold), {})
                sort[trial] = sort[trial].plus(row) if trial in sort else row
        slices = () if profile is None else [one for one in profile.slices if one.steps > 1]
        steps = [
            UsageSegment.of(Kind.STEP, one.limit_watts, True, one.steps, one.joules, one.seconds) for one in slices
        ]
        return cls(rows, between, cls.of([steps], between=between) if steps else None)

    def limits(self, kind: Kind) -> tuple[float, ...]:
        """The power limits at which such units ran or, for steps, were profiled; highest first."""
        known = {limit for one, limit, _ in self._rows if one is kind}
        profiled = self._profile.limits(kind) if self._profile is not None else ()
        return tuple(sorted({*known, *profiled}, reverse=True))

    def unit(self, kind: Kind, limit: float, cold: bool | None = None) -> Unit | None:
        """The mean unit at this limit over the newest trials that have one; None if none does.

        Args:
            kind: Which unit.
            limit: The power limit, in watts.
            cold: True: only cold units. False: only steady units. None: steady units, and cold ones if they agree.
        """
        sorts: _Sorts = (cold,) if cold is not None else (False, True) if self.is_pooled(kind) else (False,)
        rows = self._at(kind, limit, sorts)
        if not rows:
            return None
        total = reduce(Row.plus, list(rows.values())[-NEWEST:])
        return Unit(total.each, total.each * self._scatter(kind, sorts).times(total.units**-0.5), total.units)

    def is_pooled(self, kind: Kind) -> bool:
        """Whether cold and steady units agreed when they were last compared at one limit."""
        gap = self._gap(kind)
        return gap is not None and gap.within(AGREE)

    def ratio(self, kind: Kind, top: float, limit: float, *, cold: bool = False) -> Ratio | None:
        """What a unit uses at `top`, divided by what it uses at `limit`; None if unknown.

        Steady units are preferred to cold ones, or the reverse if `cold`. A power profile serves where units say
        nothing, for steps and for epochs.
        """
        if top == limit:
            return SAME
        ways: list[_Sorts] = [(cold,), (not cold,)]
        if self.is_pooled(kind):
            ways.insert(1, (False, True))
        for sorts in ways:
            found = self._to(kind, top, sorts).get(limit)
            if found is not None and not (True in sorts and _is_slower(found.factor.seconds, top, limit)):
                return found
        if self._profile is None or kind is Kind.EVALUATION:
            return None
        return self._profile.ratio(Kind.STEP, top, limit, cold=True)

    def _at(self, kind: Kind, limit: float, sorts: _Sorts) -> _Rows:
        pooled: _Rows = {}
        for cold in sorts:
            for trial, row in self._rows.get((kind, limit, cold), {}).items():
                pooled[trial] = pooled[trial].plus(row) if trial in pooled else row
        return dict(sorted(pooled.items()))

    def _gap(self, kind: Kind) -> Use | None:
        """Relative difference of cold and steady units in the newest trial that had both at one limit."""
        newest, found = -1, None
        for (one, limit, cold), first in self._rows.items():
            steady = self._rows.get((kind, limit, False), {}) if one is kind and cold else {}
            trial = max(steady.keys() & first.keys(), default=-1)
            if trial >= max(newest, 0):
                gap = abs(first[trial].each / steady[trial].each - ONE)
                found = gap.most(found) if found is not None and trial == newest else gap
                newest = trial
        return found

    def _scatter(self, kind: Kind, sorts: _Sorts) -> Use:
        """Relative scatter of units of these sorts within runs, pooled over all limits."""
        joules = seconds = Spread()
        for (one, _, cold), rows in self._rows.items():
            for row in rows.values() if one is kind and cold in sorts else ():
                each, free = row.each, row.measurements - 1.0
                joules += Spread(max(0.0, row.joules_squares / each.joules**2 - row.units) if free else 0.0, free)
                seconds += Spread(max(0.0, row.seconds_squares / each.seconds**2 - row.units) if free else 0.0, free)
        return Use(*(one.deviation(SCATTER, WORTH) for one in (joules, seconds)))

    def _to(self, kind: Kind, top: float, sorts: _Sorts) -> dict[float, Ratio]:
        """The ratio of `top` to each other limit that can be compared with it, from units of these sorts."""
        asked = (kind, top, sorts)
        if asked not in self._ratios:
            gap = self._gap(kind) if len(sorts) > 1 else None
            self._ratios[asked] = {
                limit: Ratio(factor, (error.hypot(gap) if gap is not None else error) * factor, sorts == (True,))
                for limit, (factor, error) in self._compare(kind, top, sorts).items()
            }
        return self._ratios[asked]

    def _compare(self, kind: Kind, top: float, sorts: _Sorts) -> dict[float, tuple[Use, Use]]:
        """For each limit: the ratio, and its relative standard error."""
        limits = {limit for one, limit, cold in self._rows if one is kind and cold in sorts}
        by_run: dict[int, dict[float, Row]] = {}
        for limit in limits:
            for trial, row in self._at(kind, limit, sorts).items():
                by_run.setdefault(trial, {})[limit] = row
        runs = [by_run[trial] for trial in sorted(by_run)[-LATEST:]]
        if not any(top in run for run in runs):
            return {}
        # Steady units show better how units scatter. Cold ones are often few.
        scatter = self._scatter(kind, sorts).most(self._scatter(kind, (False,)))
        return _relative(runs, top, scatter, self._between) | within_runs(runs, top, scatter)


def within_runs(
    runs: Sequence[dict[float, Row]], top: float, scatter: Use = UNSEEN_BOTH
) -> dict[float, tuple[Use, Use]]:
    """What a unit uses at `top` divided by what it uses at each limit that runs link to it, directly or through others.

    Args:
        runs: The units of each run, by limit.
        top: The limit that others are compared with.
        scatter: Relative deviation of one unit within a run.
    """
    linked, grown = {top}, {top}
    while grown:
        grown = {limit for run in runs if linked & run.keys() for limit in run} - linked
        linked |= grown
    return _relative([run for run in runs if linked & run.keys()], top, scatter, None)


def _relative(
    runs: Sequence[dict[float, Row]], top: float, scatter: Use, between: Use | None
) -> dict[float, tuple[Use, Use]]:
    """Generalised least squares of log use = limit + run, relative to `top`, in joules and in seconds.

    Args:
        runs: The units of each run, by limit.
        top: The limit that others are compared with.
        scatter: Relative deviation of one unit within a run.
        between: Relative deviation between runs; None: a run's effect is free.
    """
    limits = sorted({limit for run in runs for limit in run} - {top})
    place = {limit: n for n, limit in enumerate([top, *limits])}
    found = []
    for name in ("joules", "seconds"):
        precision, sums = np.zeros((len(place), len(place))), np.zeros(len(place))
        for run in runs:
            at = [place[limit] for limit in run]
            weight = np.array([1 / (getattr(scatter, name) ** 2 / row.units + DRIFT**2) for row in run.values()])
            logs = np.array([math.log(getattr(row.each, name)) for row in run.values()])
            free = 0.0 if between is None else getattr(between, name) ** -2
            inner = np.diag(weight) - np.outer(weight, weight) / (free + weight.sum())
            precision[np.ix_(at, at)] += inner
            sums[at] += inner @ logs
        known = slice(1, None) if between is None else slice(None)  # free effects tell only differences: `top` is 0
        covariance = np.zeros_like(precision)
        covariance[known, known] = np.linalg.inv(precision[known, known])
        means = covariance @ sums
        variance = covariance[0, 0] + covariance.diagonal() - 2 * covariance[0]
        found.append((np.exp(means[0] - means), np.sqrt(np.maximum(variance, 0.0))))
    (joules, joules_error), (seconds, seconds_error) = found
    return {
        limit: (Use(float(joules[n]), float(seconds[n])), Use(float(joules_error[n]), float(seconds_error[n])))
        for limit, n in place.items()
        if n
    }


def use_of(one: UsageSegment) -> Use:
    return Use(one.joules or 0.0, one.seconds)


def _is_slower(seconds: float, top: float, limit: float) -> bool:
    """Whether the higher limit seems slower. It never is: if cold units are among them, the difference is warm-up."""
    return seconds > 1 + AGREE if top > limit else seconds < 1 / (1 + AGREE)
