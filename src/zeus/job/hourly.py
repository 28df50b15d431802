"""When a trial used its energy: joules by hour, with the price and carbon intensity that were known then."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from zeus.job.value import Checked, NotBelow, Number
from zeus.tariff.rates import Footprint, Prices, hour_of

HOURS = 10_000  # rows of one trial at most


class HourUse(Checked, frozen=True, array_like=True):
    """The energy of one hour. A rate of None is unknown."""

    hour: Annotated[str, Meta(max_length=40)]  # its beginning, as 2026-11-15T17:00:00Z
    joules: NotBelow
    price: Number | None = None  # per kWh
    gco2e_per_kwh: NotBelow | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        hour_of(self.hour)


class HourlyUse(Checked, frozen=True):
    """The energy of a trial by hour."""

    rows: Annotated[tuple[HourUse, ...], Meta(max_length=HOURS)]
    # "time": spread by time over several hours ("curve" in older records); empty if it lies in one hour.
    by: Literal["", "curve", "time"] = ""
    currency: Annotated[str, Meta(max_length=20)] = ""
    has_price: bool = False  # whether a price was given, known or not
    has_carbon: bool = False

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
