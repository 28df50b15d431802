"""The energy of the trials of a job, added up without the rates of whoever reads it, and priced when it is read.

A trial that recorded its energy by hour is priced with the rates that it recorded. Where it recorded none, the rates of
the reader are used. A trial without such a record is spread evenly from its beginning to its last report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import reduce
from typing import TypeAlias

import msgspec

from zeus.job import TrialRecord, replace
from zeus.tariff.rates import JOULES_PER_KWH, MOST, Footprint, Prices, Rate, hour_of, rate_at, spread

Hours: TypeAlias = dict[int, tuple[float, float]]  # by hour: joules without a price, and without a carbon intensity


class EnergyPart(msgspec.Struct, frozen=True, array_like=True):
    """The energy of the trials that recorded rates of the same kind, or none at all."""

    currency: str
    has_price: bool  # whether they recorded prices, known or not
    has_carbon: bool
    by: str = ""  # as in `Footprint`
    joules: float = 0.0
    money: float = 0.0  # of the part whose price was recorded
    priced_joules: float = 0.0
    gco2e: float = 0.0  # likewise
    rated_joules: float = 0.0
    is_spread: bool = False  # whether a trial without a record lasted for more than an hour
    hours: Hours = {}  # what was not recorded; needed only for rates that differ by the hour

    def priced(self, prices: Prices) -> Footprint:
        """Its money and carbon."""
        money, priced = self._filled(prices.per_kwh, 0, self.money, self.priced_joules)
        gco2e, rated = self._filled(prices.gco2e_per_kwh, 1, self.gco2e, self.rated_joules)
        given = prices.is_given or self.has_price or self.has_carbon
        return Footprint(
            self.joules,
            money if priced else None,
            priced if self.has_price or prices.per_kwh is not None else None,
            gco2e if rated else None,
            rated if self.has_carbon or prices.gco2e_per_kwh is not None else None,
            self.currency or (prices.currency if given else ""),
            self.by or ("time" if self.is_spread and not is_flat(prices) else ""),
        )

    def _filled(self, rate: Rate | None, which: int, known: float, covered: float) -> tuple[float, float]:
        """The amount, and the joules that it covers, after the reader's rate has filled the gaps."""
        if rate is None:
            return known, covered
        if isinstance(rate, int | float):
            return known + (self.joules - covered) / JOULES_PER_KWH * rate, self.joules
        for hour, missing in sorted(self.hours.items()):
            found = rate_at(rate, hour, 0.0 if which else -MOST)
            if found is not None:
                known, covered = known + missing[which] / JOULES_PER_KWH * found, covered + missing[which]
        return known, covered


Energy: TypeAlias = tuple[EnergyPart, ...]  # none: no energy is known


def energy_of(kepts: Iterable[TrialRecord]) -> Energy:
    """The energy of some trials together, as far as it is known."""
    parts: dict[tuple[str, bool, bool], EnergyPart] = {}
    for kept in kepts:
        if (one := _energy(kept)) is not None:
            key = one.currency, one.has_price, one.has_carbon
            parts[key] = _sum(parts[key], one) if key in parts else one
    return tuple(parts.values())


def footprint(energy: Energy, prices: Prices) -> Footprint | None:
    """The footprint of some energy; None if none is known."""
    return reduce(Footprint.__add__, (part.priced(prices) for part in energy)) if energy else None


def is_flat(prices: Prices) -> bool:
    """Whether rates are the same in every hour."""
    return all(rate is None or isinstance(rate, int | float) for rate in (prices.per_kwh, prices.gco2e_per_kwh))


def without_hours(energy: Energy) -> Energy:
    """Energy that can be priced with rates that are the same in every hour."""
    return tuple(replace(part, hours={}) for part in energy)


def _energy(kept: TrialRecord) -> EnergyPart | None:
    told = kept.latest_outcome
    if told is None or told.joules is None:
        return None
    if told.hourly is None:
        hours = _spread(kept, told.joules)
        missing = {hour: (joules, joules) for hour, joules in hours.items()}
        return EnergyPart("", False, False, joules=told.joules, is_spread=len(hours) > 1, hours=missing)
    joules = money = priced = gco2e = rated = 0.0
    gaps: Hours = {}
    for row in told.hourly.rows:
        joules += row.joules
        if row.price is not None:
            money, priced = money + row.joules / JOULES_PER_KWH * row.price, priced + row.joules
        if row.gco2e_per_kwh is not None:
            gco2e, rated = gco2e + row.joules / JOULES_PER_KWH * row.gco2e_per_kwh, rated + row.joules
        if row.price is None or row.gco2e_per_kwh is None:
            here = row.joules if row.price is None else 0.0, row.joules if row.gco2e_per_kwh is None else 0.0
            gaps = _merged(gaps, {hour_of(row.hour): here})
    of = told.hourly
    return EnergyPart(of.currency, of.has_price, of.has_carbon, of.by, joules, money, priced, gco2e, rated, False, gaps)


def _spread(kept: TrialRecord, joules: float) -> Mapping[int, float]:
    try:
        begin, end = (datetime.fromisoformat(text).timestamp() for text in (kept.asked_at, kept.changed_at))
    except ValueError:  # its times are not known
        return {}
    return spread(begin, end, joules)


def _sum(one: EnergyPart, other: EnergyPart) -> EnergyPart:
    return EnergyPart(
        one.currency,
        one.has_price,
        one.has_carbon,
        one.by or other.by,
        one.joules + other.joules,
        one.money + other.money,
        one.priced_joules + other.priced_joules,
        one.gco2e + other.gco2e,
        one.rated_joules + other.rated_joules,
        one.is_spread or other.is_spread,
        _merged(one.hours, other.hours),
    )


def _merged(one: Hours, other: Hours) -> Hours:
    """The sum, in place: `one` belongs to nobody else."""
    for hour, (price, carbon) in other.items():
        before = one.get(hour, (0.0, 0.0))
        one[hour] = before[0] + price, before[1] + carbon
    return one
