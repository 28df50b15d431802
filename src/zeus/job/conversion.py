"""Estimates what a run would have used at another power limit.

Moving n units away from limit L adds n · u(L) · (ratio − 1), in joules and in seconds alike. u(L) is the run's own
steady unit. A run warms up once at any limit, so warm-up is not multiplied. Set-up is not charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zeus.cost import ONE, ZERO, Use
from zeus.job.trial import Kind, Outcome, Stretch
from zeus.job.units import SAME, UNKNOWN_SPREAD, Ratio, Units
from zeus.profile import PowerProfile

LEFT = 0.1  # largest share of a run at unknown limits; that part is not converted
ROUNDING = 1e-9  # smaller shares of a run are rounding errors
UNITS = (Kind.STEP, Kind.EPOCH)


@dataclass(frozen=True, slots=True)
class Book:
    """What is known about one batch size on one set of GPUs. The power profile fills gaps in the units."""

    units: Units
    profile: PowerProfile | None = None

    def ratio(self, kind: Kind, top: float, limit: float, *, cold: bool = False) -> Ratio | None:
        """What a unit uses at `top`, divided by what it uses at `limit`; None if unknown."""
        known = self.units.ratio(kind, top, limit, cold=cold)
        if known is not None or kind is Kind.EVALUATION or self.profile is None:
            return known
        return _profiled(self.profile, self.units, top, limit)

    def limits(self) -> tuple[float, ...]:
        """The power limits at which units ran or were profiled, highest first."""
        profiled = () if self.profile is None else (one.limit_watts for one in self.profile.slices)
        return tuple(sorted({*profiled, *(limit for kind in UNITS for limit in self.units.limits(kind))}, reverse=True))


def _profiled(profile: PowerProfile, units: Units, top: float, limit: float) -> Ratio | None:
    """A ratio of steps, which also serves for epochs. A single step is too little to measure."""
    found = {one.limit_watts: one for one in profile.slices if one.steps > 1 and one.joules > 0}
    if top not in found or limit not in found:
        return None
    high, low = found[top], found[limit]
    steps = low.steps / high.steps
    factor = Use(high.joules / low.joules * steps, high.seconds / low.seconds * steps)
    spread = units.spread(Kind.STEP) or Use(UNKNOWN_SPREAD, UNKNOWN_SPREAD)
    error = factor * spread.times((1 / high.steps + 1 / low.steps) ** 0.5)
    return Ratio(factor, error)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a run would have used entirely at one limit."""

    use: Use
    error: Use  # standard error, of the converted part and of the rest
    measured: bool  # the run was entirely at this limit


def convert(run: Outcome, limit: float, book: Book, growth: Use = ONE) -> Conversion | None:
    """The run at this limit; None if too little is known about its units.

    Args:
        run: A run of known energy.
        limit: The power limit, in watts.
        book: For the run's batch size and GPUs.
        growth: What an epoch of this run used, divided by what an epoch of the book uses. Not 1 if the data changed.
    """
    rows = [one for one in run.stretches if one.kind is not Kind.SET_UP and one.joules is not None]
    if run.joules is None or not rows:
        return None
    move = _Move(rows, limit, book, growth)
    used = left = Use(run.joules, run.seconds)
    change = doubt = held = base = ZERO
    units = unknown = 0
    for one in rows:
        ratio, is_unit = move.ratio(one), one.kind in UNITS
        units += one.count * is_unit
        if ratio is SAME:
            left -= _use(one)
        elif ratio is not None:
            left -= _use(one)
            moved = move.unit(one, ratio).times(one.count)
            change += moved * (ratio.factor - ONE)
            base += moved
            doubt += moved * ratio.error + move.doubt(one, ratio)
        elif is_unit:
            unknown += one.count
        else:
            left -= _use(one)
            held += _use(one)
    left = left.most(ZERO)
    # The share of energy alone is not enough: after a long first epoch, many units are a small share of it.
    if not units or unknown > LEFT * units or not (left / used).within(LEFT):
        return None
    if all(one.limit_watts == limit for one in rows):
        return Conversion(used, ZERO, measured=True)
    if not (left / used).within(ROUNDING):
        held += left
    # The part not seen at both limits may stay the same or change as the units do: assume half of that, ± half.
    half = held.times(0.5) * (change / base if base.joules and base.seconds else ZERO)
    return Conversion(used + change + half, doubt.hypot(abs(half)), measured=False)


def _use(one: Stretch) -> Use:
    return Use(one.joules or 0.0, one.seconds)


@dataclass(frozen=True, slots=True)
class _Move:
    """The conversion of one run to one limit."""

    rows: Sequence[Stretch]
    limit: float
    book: Book
    growth: Use

    def ratio(self, one: Stretch) -> Ratio | None:
        """What such units use at the new limit, divided by what they used."""
        if one.limit_watts is None:
            return None
        return self.book.ratio(one.kind, self.limit, one.limit_watts, cold=one.cold)

    def unit(self, one: Stretch, ratio: Ratio) -> Use:
        """What one unit used, in the same state (cold or steady) as the units behind the ratio.

        For a cold unit and a steady ratio this is the run's own steady unit, converted to this limit if needed, or
        else the steady unit of other runs. If only cold units are known, it is the unit itself.
        """
        if one.cold and not ratio.cold:
            steady = [other for other in self.rows if other.kind is one.kind and not other.cold]
            for other in sorted(steady, key=lambda other: other.limit_watts != one.limit_watts):
                there = self.ratio(other)
                if there is not None and not there.cold:
                    return _use(other).times(1 / other.count) * there.factor / ratio.factor
            if (found := self._of_others(one, None)) is not None:
                return found
        return _use(one).times(1 / one.count)

    def doubt(self, one: Stretch, ratio: Ratio) -> Use:
        """The error of converting steady units by a ratio of cold ones: half of the difference that it makes."""
        cold = self._of_others(one, True) if ratio.cold and not one.cold else None
        if cold is None:
            return ZERO
        more = cold.times(one.count) - _use(one)
        return abs(more * (ratio.factor - ONE)).times(0.5)

    def _of_others(self, one: Stretch, cold: bool | None) -> Use | None:
        found = None if one.limit_watts is None else self.book.units.unit(one.kind, one.limit_watts, cold)
        if found is None:
            return None
        return found.use * self.growth if one.kind is Kind.EPOCH else found.use
