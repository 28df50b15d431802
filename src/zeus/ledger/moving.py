"""What a run would have used at another power limit, by what its units use at each limit (`zeus.ledger.units`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zeus.cost import ONE, ZERO, Use
from zeus.job import Kind, Outcome, UsageSegment
from zeus.ledger.units import SAME, UNITS, Ratio, Units, use_of

LEFT = 0.1  # largest share of units at unknown limits; they are not moved
IDLE = 0.3  # of the power of units: a part of a run with less has no work in it
ROUNDING = 1e-9  # smaller shares of a run are rounding errors


@dataclass(frozen=True, slots=True)
class Moved:
    """What a run would have used entirely at one limit."""

    use: Use
    error: Use  # standard error
    measured: bool  # the run was entirely at this limit


def move(run: Outcome, limit: float, units: Units) -> Moved | None:
    """What this run would have used at this limit; None if too little is known about its units.

    For n units that ran at limit L, the difference is n · u(L) · (ratio − 1), where u(L) is the run's own steady unit.
    A run warms up once at any limit, so warm-up stays as it is. Set-up is not charged.
    """
    rows = [one for one in run.stretches if one.kind is not Kind.SET_UP and one.joules is not None]
    if run.joules is None or not rows:
        return None
    used = left = Use(run.joules, run.seconds)
    change = doubt = held = base = ZERO
    count = unknown = 0
    for one in rows:
        is_unit = one.kind in UNITS
        ratio = None if one.limit_watts is None else units.ratio(one.kind, limit, one.limit_watts, cold=one.cold)
        count += one.count * is_unit
        if ratio is not None or not is_unit:
            left -= use_of(one)
        if ratio is None:
            unknown += one.count * is_unit
            held += ZERO if is_unit else use_of(one)
        elif ratio is not SAME:
            moved = _unit_to_move(rows, one, ratio, limit, units).times(one.count)
            change += moved * (ratio.factor - ONE)
            base += moved
            doubt += moved * ratio.error + _doubt(one, ratio, units)
    if not count or unknown > LEFT * count:
        return None
    if all(one.limit_watts == limit for one in rows):
        return Moved(used, ZERO, measured=True)
    left = left.most(ZERO)
    if not (left / used).within(ROUNDING):
        held += left
    if not (base.joules and base.seconds and held.seconds):
        return Moved(used + change, doubt, measured=False)
    # What was not seen at both limits may stay the same or change as the units do, as far as the GPU works in it:
    # assume half of that, ± half.
    half = held.times(0.5 * _work(held, base)) * (change / base)
    return Moved(used + change + half, doubt.hypot(abs(half)), measured=False)


def _unit_to_move(rows: Sequence[UsageSegment], one: UsageSegment, ratio: Ratio, limit: float, units: Units) -> Use:
    """What of one unit changes with the limit, in the same state (cold or steady) as the units behind the ratio.

    Of a cold unit this is a steady one, if the ratio is one of steady units. By a ratio of cold units, the rest of
    it is moved too, as far as the GPU works in it. If no steady unit is known, it is the unit itself.
    """
    unit = use_of(one).times(1 / one.count)
    steady = _steady(rows, one, ratio, limit, units) if one.cold else None
    if steady is None:
        return unit
    if not ratio.cold:
        return steady
    rest = (unit - steady).most(ZERO)
    return steady + rest.times(_work(rest, steady))


def _steady(rows: Sequence[UsageSegment], one: UsageSegment, ratio: Ratio, limit: float, units: Units) -> Use | None:
    """A steady unit at the limit of this stretch: the run's own, moved there if needed, or that of other runs."""
    steady = [other for other in rows if other.kind is one.kind and not other.cold and use_of(other).joules > 0]
    for other in sorted(steady, key=lambda other: other.limit_watts != one.limit_watts):
        there = None if other.limit_watts is None else units.ratio(other.kind, limit, other.limit_watts)
        if there is not None and (ratio.cold or not there.cold):
            return use_of(other).times(1 / other.count) * there.factor / ratio.factor
    found = None if one.limit_watts is None else units.unit(one.kind, one.limit_watts)
    return None if found is None else found.use


def _doubt(one: UsageSegment, ratio: Ratio, units: Units) -> Use:
    """The error of moving steady units by a ratio of cold ones: half of the difference that it makes."""
    known = ratio.cold and not one.cold and one.limit_watts is not None
    cold = units.unit(one.kind, one.limit_watts or 0.0, cold=True) if known else None
    if cold is None:
        return ZERO
    return abs((cold.use.times(one.count) - use_of(one)) * (ratio.factor - ONE)).times(0.5)


def _work(part: Use, units: Use) -> float:
    """The share of work in a part of a run, the rest being waiting, by its power compared with that of units."""
    power = part.joules / part.seconds * units.seconds / units.joules if part.seconds and units.joules else 0.0
    return min(1.0, max(0.0, (power - IDLE) / (1 - IDLE)))
