"""When a trial used its energy: joules by hour, with the price and carbon intensity that were known then."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.job.checks import MOST, is_number, need
from zeus.tariff.rates import Footprint, Prices, hour_of


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
    by: str = ""  # "time": spread by time over several hours ("curve" in older records); empty if it lies in one hour
    currency: str = ""
    has_price: bool = False  # whether a price was given, known or not
    has_carbon: bool = False

    def __post_init__(self) -> None:
        need(self.by in ("", "curve", "time"), "by", self.by, '"curve", "time" or nothing')

    @property
    def footprint(self) -> Footprint:
        """Its money and carbon, at the rates that were known then."""
        return self.priced(Prices())

    def priced(self, prices: Prices) -> Footprint:
        """Its money and carbon. Where a rate was not known, that of these prices is used."""
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
