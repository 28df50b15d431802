"""`zeus.monitor.carbon` and `zeus.monitor.price` of the existing package: monitors with one rate, carbon or money.

New code needs none of this: `ZeusMonitor(prices=...)` measures both in every window.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlencode

from zeus import settings
from zeus.errors import ZeusError
from zeus.monitor.window import ZeusMonitor
from zeus.tariff.online import OnlineRate
from zeus.tariff.rates import SECONDS_PER_HOUR, Footprint, Prices, hour_time

SATURDAY = 5
ELECTRICITY_MAPS = "https://api.electricitymap.org/v3/carbon-intensity/history"


class ZeusCarbonIntensityHTTPError(ZeusError):
    """The source of carbon intensities did not answer."""


class ZeusCarbonIntensityNotFoundError(ZeusError):
    """The source does not know the carbon intensity."""


class ZeusElectricityPriceHTTPError(ZeusError):
    """The source of prices did not answer."""


class ZeusElectricityPriceNotFoundError(ZeusError):
    """The source does not know the price."""


class CarbonIntensityProvider(abc.ABC):
    """Tells carbon intensities in gCO2e per kWh."""

    @abc.abstractmethod
    def get_current_carbon_intensity(self) -> float:
        """The intensity now."""

    @abc.abstractmethod
    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        """The intensities of the last hours, by the time from which each holds."""

    @property
    @abc.abstractmethod
    def update_period(self) -> timedelta:
        """For how long each value holds."""

    @property
    @abc.abstractmethod
    def history_length(self) -> int:
        """How many values the recent intensities hold."""


class ElectricityPriceProvider(abc.ABC):
    """Tells a tariff."""

    @abc.abstractmethod
    def get_current_electricity_prices(self) -> dict[str, list[Any]]:
        """The tariff.

        `energy_rate_structure` has a list for each period of the tariff, whose first object has the `rate` per kWh.
        `energy_weekday_schedule` and `energy_weekend_schedule` have the number of the period by month and hour, in the
        local time of this machine.
        """


class ElectrictyMapsClient(CarbonIntensityProvider):  # the known name is spelt so
    """Electricity Maps. Its token is that of ZEUS_GCO2E_TOKEN.

    Args:
        location: Latitude and longitude.
        estimate: Whether estimated values are wanted where there are no measured ones.
        emission_factor_type: "direct" or "lifecycle".
        url: Another address that answers in the same form.
    """

    def __init__(
        self,
        location: tuple[float, float],
        estimate: bool = False,
        emission_factor_type: Literal["direct", "lifecycle"] = "direct",
        *,
        url: str = ELECTRICITY_MAPS,
    ) -> None:
        self.lat, self.long = location
        self.estimate = estimate
        self.emission_factor_type = emission_factor_type
        asked = {
            "lat": self.lat,
            "lon": self.long,
            "disableEstimations": str(not estimate).lower(),
            "emissionFactorType": emission_factor_type,
        }
        self._rate = OnlineRate(f"{url}?{urlencode(asked)}", settings.gco2e_token())

    def get_current_carbon_intensity(self) -> float:
        now = int(datetime.now(UTC).timestamp()) // SECONDS_PER_HOUR
        found = self._rate.at(now)
        if found is None:
            raise ZeusCarbonIntensityNotFoundError(
                f"the carbon intensity at {(self.lat, self.long)} is not known now. Set ZEUS_GCO2E_TOKEN if the source "
                "needs a token, or allow estimates with estimate=True."
            )
        return found

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        now = int(datetime.now(UTC).timestamp()) // SECONDS_PER_HOUR
        hours = range(now - self.history_length, now + 1)
        found = {hour_time(hour): value for hour in hours if (value := self._rate.at(hour)) is not None}
        if not found:
            raise ZeusCarbonIntensityHTTPError(f"no carbon intensities at {(self.lat, self.long)} were answered.")
        return found

    @property
    def update_period(self) -> timedelta:
        return timedelta(hours=1)

    @property
    def history_length(self) -> int:
        return 24


@dataclass
class CarbonEmissionMeasurement:
    """Time, energy in joules, and carbon in gCO2e by GPU and by CPU. Unknown is NaN."""

    time: float
    gpu_energy: dict[int, float]
    gpu_carbon_emission: dict[int, float]
    cpu_energy: dict[int, float] | None = None
    cpu_carbon_emission: dict[int, float] | None = None
    dram_energy: dict[int, float] | None = None
    dram_carbon_emission: dict[int, float] | None = None


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


class _PricedMonitor:
    """Measures windows, with the money or carbon of each GPU, CPU and memory."""

    def __init__(
        self,
        prices: Prices,
        gpu_indices: Sequence[int] | None,
        cpu_indices: Sequence[int] | None,
        sync_execution_with: str | None,
    ) -> None:
        self.zeus_monitor = ZeusMonitor(
            gpu_indices, cpu_indices, sync_execution_with=sync_execution_with, prices=prices
        )

    def begin_window(self, key: str, sync_execution: bool = True) -> None:
        self.zeus_monitor.begin_window(key, sync_execution)

    def _end(self, key: str, sync_execution: bool, amount: Callable[[Footprint], float | None]) -> tuple[Any, ...]:
        """The time of a window, and its energy and this amount by GPU, by CPU and by memory.

        An unknown amount is NaN. Where nothing was measured, both are None.
        """
        found = self.zeus_monitor.end_window(key, sync_execution)

        def of(energies: Mapping[int, float] | None) -> dict[int, float] | None:
            if energies is None:
                return None
            amounts = {index: amount(found.footprint_of(joules)) for index, joules in energies.items()}
            return {index: math.nan if known is None else known for index, known in amounts.items()}

        gpu, cpu, dram = found.gpu_energy, found.cpu_energy, found.dram_energy
        return found.time, gpu, of(gpu), cpu, of(cpu), dram, of(dram)


class CarbonEmissionMonitor(_PricedMonitor):
    """Measures the time, energy and carbon of windows.

    Args:
        carbon_intensity_provider: Tells the carbon intensity. What it does not know is unknown (NaN).
        gpu_indices: As of `ZeusMonitor`.
        cpu_indices: As of `ZeusMonitor`.
        sync_execution_with: As of `ZeusMonitor`.
    """

    def __init__(
        self,
        carbon_intensity_provider: CarbonIntensityProvider,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        sync_execution_with: str | None = "torch",
    ) -> None:
        self.carbon_intensity_provider = carbon_intensity_provider
        rate = Prices(gco2e_per_kwh=_carbon_rate(carbon_intensity_provider))
        super().__init__(rate, gpu_indices, cpu_indices, sync_execution_with)

    def end_window(self, key: str, sync_execution: bool = True) -> CarbonEmissionMeasurement:
        """Close a window and measure it."""
        return CarbonEmissionMeasurement(*self._end(key, sync_execution, lambda part: part.gco2e))


class EnergyCostMonitor(_PricedMonitor):
    """Measures the time, energy and energy cost of windows. Other arguments are as of `CarbonEmissionMonitor`.

    Args:
        electricity_price_provider: Tells the tariff. What it does not know is unknown (NaN).
    """

    def __init__(
        self,
        electricity_price_provider: ElectricityPriceProvider,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        sync_execution_with: str | None = "torch",
    ) -> None:
        self.electricity_price_provider = electricity_price_provider
        rate = Prices(per_kwh=_price_rate(electricity_price_provider))
        super().__init__(rate, gpu_indices, cpu_indices, sync_execution_with)

    def end_window(self, key: str, sync_execution: bool = True) -> EnergyCostMeasurement:
        """Close a window and measure it."""
        return EnergyCostMeasurement(*self._end(key, sync_execution, lambda part: part.money))


def _carbon_rate(provider: CarbonIntensityProvider) -> Callable[[datetime], float | None]:
    """The provider as a rate. Each hour is asked for once; what it raises makes the hour unknown."""
    known: dict[datetime, float] = {}

    def rate(hour: datetime) -> float | None:
        if hour not in known:
            recent = provider.get_recent_carbon_intensity()
            for time, value in recent.items():
                known[time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)] = value
        if hour not in known and hour <= datetime.now(UTC) < hour + timedelta(hours=1):
            known[hour] = provider.get_current_carbon_intensity()
        return known.get(hour)

    return rate


def _price_rate(provider: ElectricityPriceProvider) -> Callable[[datetime], float | None]:
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
