"""What a unit of a training (a step, an epoch, an evaluation) uses at each power limit, cold and steady.

A book is opened over the stretches of some trials of one batch size on the same GPUs, the oldest first. Everything that
is said about an epoch's cost, about a power limit and about the default rests on it, so that each new run refreshes it.

A cold unit is one of a process's first epoch, in which libraries load and kernels are chosen. It is never compared with
a steady one, unless the two are seen to agree at one limit: then they are the same, and count together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from zeus.job.trial import Kind, Stretch

AGREE = 0.05  # cold and steady units that differ by no more than this share are the same
NEWEST = 5  # trials that say what a unit uses: older ones may be of other data
UNKNOWN_SPREAD = 0.05  # relative, of a single unit where nothing shows how units scatter


class Unit(NamedTuple):
    """What one unit uses, with the standard errors of both means."""

    joules: float
    seconds: float
    joules_error: float
    seconds_error: float
    count: int  # units that it rests on


class Ratio(NamedTuple):
    """How much more a unit uses at one limit than at another, with standard errors."""

    joules: float
    seconds: float
    joules_error: float
    seconds_error: float
    cold: bool  # known of cold units alone


@dataclass(frozen=True, slots=True)
class Units:
    """The book of one batch size on one set of GPUs.

    >>> def run(*rows):
    ...     return [Stretch.of(Kind.EPOCH, limit, cold, n, n * joules, n * 1.0) for limit, cold, n, joules in rows]
    >>> book = Units.of([run((250.0, True, 1, 500.0), (250.0, False, 1, 100.0), (150.0, False, 3, 80.0))])
    >>> book.ratio(Kind.EPOCH, 250.0, 150.0).joules, book.unit(Kind.EPOCH, 150.0).joules
    (1.25, 80.0)
    """

    trials: tuple[tuple[Stretch, ...], ...]  # of each trial, the oldest first
    _spreads: dict[Kind, tuple[float, float]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, trials: Iterable[Sequence[Stretch]]) -> Units:
        """A book over these trials; stretches of unknown energy or limit teach nothing here."""
        known = (tuple(s for s in some if s.joules is not None and s.limit_watts is not None) for some in trials)
        return cls(tuple(some for some in known if some))

    def limits(self, kind: Kind) -> tuple[float, ...]:
        """The limits at which such units ran, highest first."""
        found = {s.limit_watts for some in self.trials for s in some if s.kind is kind and s.limit_watts is not None}
        return tuple(sorted(found, reverse=True))

    def unit(self, kind: Kind, limit: float, cold: bool | None = None) -> Unit | None:
        """A unit at this limit, by the newest trials that had one.

        Args:
            kind: What is asked about.
            limit: In watts.
            cold: True or False for one sort alone. None: steady ones, with cold ones where those are the same.
        """
        if cold is not None:
            return self._mean(kind, limit, (cold,))
        return self._mean(kind, limit, (False, True) if self.is_pooled(kind) else (False,))

    def is_pooled(self, kind: Kind) -> bool:
        """Whether cold and steady units were seen to agree, at some limit, when they last could be compared."""
        for some in reversed(self.trials):
            for limit in {s.limit_watts for s in some if s.kind is kind}:
                pair = [
                    _sum(s for s in some if s.kind is kind and s.limit_watts == limit and s.cold is c)
                    for c in (True, False)
                ]
                cold, steady = pair
                if cold is not None and steady is not None:
                    return all(abs(a - b) <= AGREE * b for a, b in zip(_each(cold), _each(steady), strict=True))
        return False

    def ratio(self, kind: Kind, top: float, limit: float) -> Ratio | None:
        """What a unit uses at `top` over what it uses at `limit`; None where that was never seen.

        Units of one and the same trial are compared before units of different ones, which may be of other data, and
        steady units before cold ones.
        """
        if top == limit:
            return Ratio(1.0, 1.0, 0.0, 0.0, False)
        for sorts in ((False, True) if self.is_pooled(kind) else (False,)), (True,):
            both = [
                some
                for some in self.trials
                if _at(some, kind, top, sorts) is not None and _at(some, kind, limit, sorts)
            ]
            book = Units(tuple(both), self._spreads) if both else self
            high, low = book._mean(kind, top, sorts), book._mean(kind, limit, sorts)
            if high is not None and low is not None and low.joules > 0 and low.seconds > 0:
                joules, seconds = high.joules / low.joules, high.seconds / low.seconds
                return Ratio(
                    joules,
                    seconds,
                    joules * math.hypot(high.joules_error / high.joules, low.joules_error / low.joules),
                    seconds * math.hypot(high.seconds_error / high.seconds, low.seconds_error / low.seconds),
                    sorts == (True,),
                )
        return None

    def _mean(self, kind: Kind, limit: float, sorts: tuple[bool, ...]) -> Unit | None:
        found = [one for some in self.trials if (one := _at(some, kind, limit, sorts)) is not None][-NEWEST:]
        total = _sum(found)
        if total is None or total.joules is None or not total.seconds > 0 or not total.joules > 0:
            return None
        joules, seconds = _each(total)
        of_joules, of_seconds = self._spread(kind)
        root = math.sqrt(total.count)
        return Unit(joules, seconds, joules * of_joules / root, seconds * of_seconds / root, total.count)

    def _spread(self, kind: Kind) -> tuple[float, float]:
        """Relative standard deviation of one unit's joules and seconds, pooled over all limits and sorts."""
        if kind in self._spreads:
            return self._spreads[kind]
        squares, freedom = [0.0, 0.0], 0
        for some in self.trials:
            for one in some:
                if one.kind is kind and one.joules is not None and one.looks > 1 and one.joules > 0 < one.seconds:
                    each = _each(one)
                    for i, square in enumerate((one.joules_squares, one.seconds_squares)):
                        squares[i] += max(0.0, square / each[i] ** 2 - one.count)
                    freedom += one.looks - 1
        found = (
            (math.sqrt(squares[0] / freedom), math.sqrt(squares[1] / freedom))
            if freedom
            else (UNKNOWN_SPREAD, UNKNOWN_SPREAD)
        )
        self._spreads[kind] = found
        return found


def _at(some: Iterable[Stretch], kind: Kind, limit: float, sorts: tuple[bool, ...]) -> Stretch | None:
    return _sum(s for s in some if s.kind is kind and s.limit_watts == limit and s.cold in sorts)


def _sum(some: Iterable[Stretch]) -> Stretch | None:
    total: Stretch | None = None
    for one in some:
        total = one if total is None else total + one
    return total


def _each(total: Stretch) -> tuple[float, float]:
    """Joules and seconds of one unit."""
    return (total.joules or 0.0) / total.count, total.seconds / total.count
