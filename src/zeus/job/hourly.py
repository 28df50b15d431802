"""When a trial used its energy: joules by hour, with the price and carbon intensity that were known then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.job.checks import MOST, is_number, need
from zeus.tariff.rates import Footprint, Prices, hour_of, hour_text


@dataclass(frozen=True, slots=True)
class HourUse:
    """The energy of one hour. A rate of None is unknown."""

    hour: str  # its beginning, as 2026-11-15T17:00:00Z
    joules: float
    price: float | None = None  # per kWh
    gco2e_per_kwh: float | None = None

    def __post_init__(self) -> None:
        hour_of(self.hour)
        need(is_number(self.joules, 0), "joules", self.joules, f"a number from 0 to {MOST:g}")
        need(self.price is None or is_number(self.price), "price", self.price, "a finite number, or None")
        carbon = self.gco2e_per_kwh
        need(carbon is None or is_number(carbon, 0), "gco2e_per_kwh", carbon, "a number of at least 0, or None")


@dataclass(frozen=True, slots=True)
class HourlyUse:
    """The energy of a trial by hour."""

    rows: tuple[HourUse, ...]
    by: str = ""  # how it was split over hours: "curve" or "time"; empty if it lies in one hour
    currency: str = ""
    has_price: bool = False  # whether a price was given, known or not
    has_carbon: bool = False

    def __post_init__(self) -> None:
        need(self.by in ("", "curve", "time"), "by", self.by, '"curve", "time" or nothing')

    @property
    def footprint(self) -> Footprint:
        """What it comes to, at the rates that were known then."""
        return self.priced(Prices())

    def priced(self, prices: Prices) -> Footprint:
        """What it comes to. Where a rate was not known, that of these prices is used."""
        rows = []
        for row in self.rows:
            price, carbon = row.price, row.gco2e_per_kwh
            if prices.is_given and None in (price, carbon):
                ours = prices.at(hour_of(row.hour))
                price, carbon = (ours[0] if price is None else price), (ours[1] if carbon is None else carbon)
            rows.append((row.joules, price, carbon))
        return Footprint.of(
            rows,
            self.currency or prices.currency,
            has_price=self.has_price or prices.per_kwh is not None,
            has_carbon=self.has_carbon or prices.gco2e_per_kwh is not None,
            by=self.by,
        )


@dataclass(slots=True)
class HourTally:
    """Adds up measured energy by hour while a trial runs.

    >>> tally = HourTally()
    >>> tally.add({498545: 60.0, 498546: 40.0}, "curve")
    >>> [row.joules for row in tally.hourly(50.0, Prices(0.3)).rows]
    [30.0, 20.0]
    """

    joules: dict[int, float] = field(default_factory=dict)
    by: str = ""

    def add(self, joules: Mapping[int, float], by: str) -> None:
        for hour, used in joules.items():
            self.joules[hour] = self.joules.get(hour, 0.0) + max(0.0, used)
        self.by = "time" if "time" in (by, self.by) else by or self.by

    def hourly(self, joules: float, prices: Prices, *, wait: bool = True) -> HourlyUse | None:
        """These joules, spread over the hours as what was measured, with the rates of each hour.

        Without `wait`, an online source is not waited for. None if nothing was measured, or neither a price nor an
        intensity is given.
        """
        total = sum(self.joules.values())
        if not prices.is_given or not total > 0:
            return None
        rows = tuple(
            HourUse(hour_text(hour), joules * used / total, *prices.at(hour, wait=wait))
            for hour, used in sorted(self.joules.items())
        )
        several = "curve" if len(rows) > 1 else ""
        has_price, has_carbon = prices.per_kwh is not None, prices.gco2e_per_kwh is not None
        return HourlyUse(rows, self.by or several, prices.currency, has_price, has_carbon)
