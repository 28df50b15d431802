"""Adds up the energy of a training by hour, for prices and carbon intensities that differ from hour to hour."""

from __future__ import annotations

from dataclasses import dataclass, field

from zeus.cost import GPU_ONLY, Include
from zeus.job import Outcome, replace
from zeus.job.hourly import HourlyUse, HourUse
from zeus.monitor.measurement import Measurement
from zeus.tariff.rates import Prices, hour_text


@dataclass(slots=True)
class EnergyByHour:
    """Adds up measured energy by hour while a trial runs, if a price or a carbon intensity is given.

    >>> energy = EnergyByHour(Prices(0.3), joules={498545: 60.0, 498546: 40.0})
    >>> [row.joules for row in energy.hourly(50.0).rows]
    [30.0, 20.0]
    """

    prices: Prices
    include: Include = GPU_ONLY  # whose energy counts
    joules: dict[int, float] = field(default_factory=dict)

    def add(self, measurement: Measurement) -> None:
        """Add a window, spread evenly over its hours."""
        if not self.prices.is_given:
            return
        for hour, joules in measurement.by_hour(measurement.use(self.include).joules).items():
            self.joules[hour] = self.joules.get(hour, 0.0) + max(0.0, joules)

    def priced(self, outcome: Outcome, *, wait: bool = True) -> Outcome:
        """The outcome with its energy by hour."""
        return outcome if outcome.joules is None else replace(outcome, hourly=self.hourly(outcome.joules, wait=wait))

    def hourly(self, joules: float, *, wait: bool = True) -> HourlyUse | None:
        """These joules, in the same proportion as the measured ones, with the rates of each hour.

        Without `wait`, an online source is not waited for. None if nothing was measured, or neither a price nor an
        intensity is given.
        """
        total, prices = sum(self.joules.values()), self.prices
        if not prices.is_given or not total > 0:
            return None
        rows = tuple(
            HourUse(hour_text(hour), joules * used / total, *prices.at(hour, wait=wait))
            for hour, used in sorted(self.joules.items())
        )
        has_price, has_carbon = prices.per_kwh is not None, prices.gco2e_per_kwh is not None
        return HourlyUse(rows, "time" if len(rows) > 1 else "", prices.currency, has_price, has_carbon)
