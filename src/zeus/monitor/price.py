"""`EnergyCostMonitor`, under the name that users of the existing package know. It is a `ZeusMonitor` with a price."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zeus.errors import NotHere, ZeusError
from zeus.monitor.carbon import PricedMonitor
from zeus.tariff.rates import Prices

SATURDAY = 5


class ZeusElectricityPriceHTTPError(ZeusError):
    """The source of prices did not answer."""


class ZeusElectricityPriceNotFoundError(ZeusError):
    """The source does not know the price."""


class ElectricityPriceProvider(abc.ABC):
    """Tells a tariff."""

    @abc.abstractmethod
    def get_current_electricity_prices(self) -> dict[str, list[Any]]:
        """The tariff.

        `energy_rate_structure` has a list for each period of the tariff, whose first object has the `rate` per kWh.
        `energy_weekday_schedule` and `energy_weekend_schedule` have the number of the period by month and hour, in the
        local time of this machine.
        """


@dataclass
class EnergyCostMeasurement:
    """Time, energy in joules, and its cost by GPU and by CPU. Unknown is NaN."""

    time: float
    gpu_energy: dict[int, float]
    gpu_energy_cost: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    cpu_energy_cost: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    dram_energy_cost: dict[int, float] | None = None


class EnergyCostMonitor(PricedMonitor):
    """Measures the time, energy and energy cost of windows.

    Args:
        electricity_price_provider: Tells the tariff. What it does not know is unknown (NaN).
        gpu_indices: As of `ZeusMonitor`.
        cpu_indices: As of `ZeusMonitor`.
        sync_execution_with: As of `ZeusMonitor`.
    """

    def __init__(
        self,
        electricity_price_provider: ElectricityPriceProvider,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        sync_execution_with: str | None = "torch",
    ) -> None:
        self.electricity_price_provider = electricity_price_provider
        prices = Prices(per_kwh=_rate_of(electricity_price_provider))
        super().__init__(prices, gpu_indices, cpu_indices, sync_execution_with)

    def end_window(self, key: str, sync_execution: bool = True) -> EnergyCostMeasurement:
        """Close a window and measure it."""
        return EnergyCostMeasurement(*self._end(key, sync_execution, lambda part: part.money))


def _rate_of(provider: ElectricityPriceProvider) -> Callable[[datetime], float | None]:
    """The tariff as a rate by the hour. It is asked for once."""
    tariff: dict[str, list[Any]] = {}

    def rate(hour: datetime) -> float | None:
        if not tariff:
            tariff.update(provider.get_current_electricity_prices())
        local = hour.astimezone()  # a tariff knows the hours of its customers
        days = "weekday" if local.weekday() < SATURDAY else "weekend"
        period = tariff[f"energy_{days}_schedule"][local.month - 1][local.hour]
        return float(tariff["energy_rate_structure"][period][0]["rate"])

    return rate


def __getattr__(name: str) -> Any:
    if name == "OpenEIClient":
        raise NotHere(
            "zeus.monitor.price.OpenEIClient of the existing package is not here: no tariff is looked up online. Set "
            "ZEUS_PRICE_PER_KWH to a number or a file of hourly values, or write an ElectricityPriceProvider."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
