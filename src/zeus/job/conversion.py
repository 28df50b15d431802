"""A run as it would have been at another power limit: its units are moved there, everything else stays as it was.

Moving n units from limit L to another adds n · u(L) · (ratio − 1), in joules and in seconds alike. u(L) is the run's
own steady unit, so that warm-up, which a run has once whatever the limit, is never multiplied. Set-up is not charged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from zeus.job.amount import ONE, ZERO, Amount
from zeus.job.trial import Kind, Outcome, Stretch
from zeus.job.units import SAME, UNKNOWN_SPREAD, Ratio, Units
from zeus.profile import PowerProfile

LEFT = 0.1  # share of a run that may be of unknown limits, and is then left as it was
LARGE = 0.25  # a limit that nothing is known about may change what a unit uses by so much
UNITS = (Kind.STEP, Kind.EPOCH)


@dataclass(frozen=True, slots=True)
class Book:
    """What is known of one batch size on one set of GPUs: its units, and a power profile for what they do not say."""

    units: Units
    profile: PowerProfile | None = None

    def ratio(self, kind: Kind, top: float, limit: float) -> Ratio | None:
        """What a unit uses at `top` over what it uses at `limit`; None where that is not known."""
        known = self.units.ratio(kind, top, limit)
        if known is not None or kind is Kind.EVALUATION or self.profile is None:
            return known
        return _profiled(self.profile, self.units, top, limit)

    def limits(self) -> tuple[float, ...]:
        """The limits at which units ran or were profiled, highest first."""
        profiled = () if self.profile is None else (one.limit_watts for one in self.profile.slices)
        return tuple(sorted({*profiled, *(limit for kind in UNITS for limit in self.units.limits(kind))}, reverse=True))

    def change(self, top: float, limit: float | None) -> Amount:
        """By what share units change from this limit to `top`, at most, where the limit is not known."""
        if limit is not None:
            for kind in UNITS:
                ratio = self.ratio(kind, top, limit)
                if ratio is not None:
                    return abs(ratio.factor - ONE)
        known = [ratio for kind in UNITS for one in self.limits() if (ratio := self.ratio(kind, top, one)) is not None]
        return Amount(
            max((abs(ratio.joules - 1) for ratio in known), default=LARGE),
            max((abs(ratio.seconds - 1) for ratio in known), default=LARGE),
        ).most(Amount(LARGE, LARGE))


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
    if run.joules is None or not any(one.kind in UNITS for one in rows):
        return None
    used = Amount(run.joules, run.seconds)
    known = {_at(one): ratio for one in rows if (ratio := _ratio(one, limit, book)) is not None}
    steady = _steady(rows)
    accounted = moved = doubt = held = ZERO
    for one in rows:
        use, ratio = Amount(one.joules or 0.0, one.seconds), known.get(_at(one))
        if ratio is not None and one.limit_watts is not None:
            accounted += use
            if ratio is not SAME:
                units = _unit(one, one.limit_watts, ratio, known, steady, book, growth).times(one.count)
                moved += units * (ratio.factor - ONE)
                doubt += units * ratio.error + _unlike(one, one.limit_watts, ratio, book, growth)
        elif one.kind is Kind.EVALUATION:
            accounted += use
            held += use * book.change(limit, one.limit_watts)
    left = (used - accounted).most(ZERO)
    if not (left / used).within(LEFT) or _unknown_units(rows, known) > LEFT:
        return None
    if all(one.limit_watts == limit for one in rows):
        return Conversion(used, ZERO, measured=True)
    if left.joules or left.seconds:
        held += left * book.change(limit, None)
    return Conversion(used + moved, doubt.hypot(held.times(0.5)), measured=False)


_At = tuple[Kind, float | None]


def _at(one: Stretch) -> _At:
    return one.kind, one.limit_watts


def _ratio(one: Stretch, limit: float, book: Book) -> Ratio | None:
    return None if one.limit_watts is None else book.ratio(one.kind, limit, one.limit_watts)


def _unknown_units(rows: Iterable[Stretch], known: Container[_At]) -> float:
    """The share of all units that cannot be moved. A long first epoch could hide them in a share of the energy."""
    units = [one for one in rows if one.kind in UNITS]
    return sum(one.count for one in units if _at(one) not in known) / sum(one.count for one in units)


def _steady(rows: list[Stretch]) -> dict[_At, Amount]:
    """The run's own steady unit of each kind at each limit."""
    sums: dict[_At, tuple[Amount, int]] = {}
    for one in rows:
        if not one.cold:
            use, count = sums.get(_at(one), (ZERO, 0))
            sums[_at(one)] = (use + Amount(one.joules or 0.0, one.seconds), count + one.count)
    return {at: use.times(1 / count) for at, (use, count) in sums.items()}


def _unit(
    one: Stretch,
    limit: float,
    ratio: Ratio,
    known: Mapping[_At, Ratio],
    steady: Mapping[_At, Amount],
    book: Book,
    growth: Amount,
) -> Amount:
    """What one of these units would have used if it had been like those that the ratio is of.

    For a cold one: the run's own steady unit at that limit, or at another one and brought here, or that of other runs.
    """
    own = Amount((one.joules or 0.0) / one.count, one.seconds / one.count)
    if not one.cold or ratio.cold:
        return own
    if _at(one) in steady:
        return steady[_at(one)]
    for (kind, elsewhere), unit in steady.items():
        other = known.get((kind, elsewhere))
        if kind is one.kind and other is not None and not other.cold:
            return unit * other.factor / ratio.factor
    of_others = book.units.unit(one.kind, limit)
    if of_others is None:
        return own
    return of_others.use * growth if one.kind is Kind.EPOCH else of_others.use


def _unlike(one: Stretch, limit: float, ratio: Ratio, book: Book, growth: Amount) -> Amount:
    """The doubt about steady units where only the ratio of cold ones is known.

    Cold ones use more, so that the same ratio would change more: half of that.
    """
    cold = book.units.unit(one.kind, limit, cold=True) if ratio.cold and not one.cold else None
    if cold is None:
        return ZERO
    use = cold.use * growth if one.kind is Kind.EPOCH else cold.use
    more = use.times(one.count) - Amount(one.joules or 0.0, one.seconds)
    return abs(more * (ratio.factor - ONE)).times(0.5)
