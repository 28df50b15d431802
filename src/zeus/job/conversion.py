"""A run as it would have been at another power limit: its units are moved there, everything else stays as it was.

Moving n units from limit L to another adds n · u(L) · (ratio − 1), in joules and in seconds alike. u(L) is the run's
own steady unit, so that warm-up, which a run has once whatever the limit, is never multiplied. Set-up is not charged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zeus.job.amount import ONE, ZERO, Amount
from zeus.job.trial import Kind, Outcome, Stretch
from zeus.job.units import SAME, UNKNOWN_SPREAD, Ratio, Units
from zeus.profile import PowerProfile

LEFT = 0.1  # share of a run that may be of unknown limits, and is then left as it was
ROUNDING = 1e-9  # share of a run that is no part of it
LARGE = 0.25  # a limit that nothing is known about may change what a unit uses by so much
UNITS = (Kind.STEP, Kind.EPOCH)


@dataclass(frozen=True, slots=True)
class Book:
    """What is known of one batch size on one set of GPUs: its units, and a power profile for what they do not say."""

    units: Units
    profile: PowerProfile | None = None

    def ratio(self, kind: Kind, top: float, limit: float, *, cold: bool = False) -> Ratio | None:
        """What a unit uses at `top` over what it uses at `limit`; None where that is not known."""
        known = self.units.ratio(kind, top, limit, cold=cold)
        if known is not None or kind is Kind.EVALUATION or self.profile is None:
            return known
        return _profiled(self.profile, self.units, top, limit)

    def limits(self) -> tuple[float, ...]:
        """The limits at which units ran or were profiled, highest first."""
        profiled = () if self.profile is None else (one.limit_watts for one in self.profile.slices)
        return tuple(sorted({*profiled, *(limit for kind in UNITS for limit in self.units.limits(kind))}, reverse=True))


def _profiled(profile: PowerProfile, units: Units, top: float, limit: float) -> Ratio | None:
    """A ratio of steps, which serves for epochs too; one step alone says too little."""
    found = {one.limit_watts: one for one in profile.slices if one.steps > 1 and one.joules > 0}
    if top not in found or limit not in found:
        return None
    high, low = found[top], found[limit]
    steps = low.steps / high.steps
    factor = Amount(high.joules / low.joules * steps, high.seconds / low.seconds * steps)
    spread = units.spread(Kind.STEP) or Amount(UNKNOWN_SPREAD, UNKNOWN_SPREAD)
    error = factor * spread.times((1 / high.steps + 1 / low.steps) ** 0.5)
    return Ratio(factor.joules, factor.seconds, error.joules, error.seconds, False)


@dataclass(frozen=True, slots=True)
class Conversion:
    """What a run would have used with all of it at one limit."""

    use: Amount
    error: Amount  # standard error of what was moved, and of what could not be
    measured: bool  # all of it did run there


def convert(run: Outcome, limit: float, book: Book, growth: Amount = ONE) -> Conversion | None:
    """The run at this limit; None where too little is known of its units to say.

    Args:
        run: That told its energy.
        limit: In watts.
        book: Of its batch size and GPUs.
        growth: How much more an epoch used in this run than in those of the book, because of other data.
    """
    rows = [one for one in run.stretches if one.kind is not Kind.SET_UP and one.joules is not None]
    if run.joules is None or not rows:
        return None
    move = _Move(rows, limit, book, growth)
    used = left = Amount(run.joules, run.seconds)
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
    # a long first epoch could hide many units in a small share of the energy
    if not units or unknown > LEFT * units or not (left / used).within(LEFT):
        return None
    if all(one.limit_watts == limit for one in rows):
        return Conversion(used, ZERO, measured=True)
    if not (left / used).within(ROUNDING):
        held += left
    # What nobody saw at both limits may stay as it was, or change as the units do: half of that, give or take as much.
    half = held.times(0.5) * (change / base if base.joules and base.seconds else ZERO)
    return Conversion(used + change + half, doubt.hypot(abs(half)), measured=False)


def _use(one: Stretch) -> Amount:
    return Amount(one.joules or 0.0, one.seconds)


@dataclass(frozen=True, slots=True)
class _Move:
    """One run on its way to one limit."""

    rows: Sequence[Stretch]
    limit: float
    book: Book
    growth: Amount

    def ratio(self, one: Stretch) -> Ratio | None:
        """What such units use at the new limit over what they used."""
        if one.limit_watts is None:
            return None
        return self.book.ratio(one.kind, self.limit, one.limit_watts, cold=one.cold)

    def unit(self, one: Stretch, ratio: Ratio) -> Amount:
        """What one of these units would have used if it had been like those that the ratio is of.

        For a cold one that is the run's own steady unit at that limit, or at another one and brought there, or the
        steady unit of other runs. Where all units known are cold, it is the unit itself.
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

    def doubt(self, one: Stretch, ratio: Ratio) -> Amount:
        """Of steady units where only the ratio of cold ones is known, which use more and so would change more: half."""
        cold = self._of_others(one, True) if ratio.cold and not one.cold else None
        if cold is None:
            return ZERO
        more = cold.times(one.count) - _use(one)
        return abs(more * (ratio.factor - ONE)).times(0.5)

    def _of_others(self, one: Stretch, cold: bool | None) -> Amount | None:
        found = None if one.limit_watts is None else self.book.units.unit(one.kind, one.limit_watts, cold)
        if found is None:
            return None
        return found.use * self.growth if one.kind is Kind.EPOCH else found.use
