"""`zeus.monitor.carbon` and `zeus.monitor.price` of the existing package: monitors with one rate, carbon or money.

New code needs none of this: `ZeusMonitor(prices=...)` measures both in every window.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import make_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Literal
from urllib.parse import urlencode

from zeus import settings
from zeus.errors import ZeusError
from zeus.monitor.window import ZeusMonitor
from zeus.tariff.online import OnlineRate
from zeus.tariff.rates import SECONDS_PER_HOUR, Prices, hour_time

SATURDAY = 5
ELECTRICITY_MAPS = "https://api.electricitymap.org/v3/carbon-intensity/history"


class RateNotKnown(ZeusError):
    """A source did not answer, or does not know the rate. The existing package has four names for it."""


ZeusCarbonIntensityHTTPError = ZeusCarbonIntensityNotFoundError = RateNotKnown
ZeusElectricityPriceHTTPError = ZeusElectricityPriceNotFoundError = RateNotKnown


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

    update_period = timedelta(hours=1)
    history_length = 24

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
        return self._known(1)[-1][1]

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        return dict(self._known(self.history_length + 1))

    def _known(self, hours: int) -> list[tuple[datetime, float]]:
        """What is known of so many hours, of which the present one is the last."""
        now = int(datetime.now(UTC).timestamp()) // SECONDS_PER_HOUR
        latest = range(now - hours + 1, now + 1)
        found = [(hour_time(hour), value) for hour in latest if (value := self._rate.at(hour)) is not None]
        if not found:
            raise RateNotKnown(
                f"the carbon intensity at {(self.lat, self.long)} is not known now. Set ZEUS_GCO2E_TOKEN if the source "
                "needs a token, or allow estimates with estimate=True."
            )
        return found


def _measurement(name: str, amount: str) -> Any:
    """A dataclass with the time of a window, and the energy in joules and this amount of each GPU, CPU and memory."""
    known, optional = dict[int, float], dict[int, float] | None
    parts = [(f"{part}_{what}", optional, None) for part in ("cpu", "dram") for what in ("energy", amount)]
    fields = [("time", float), ("gpu_energy", known), (f"gpu_{amount}", known), *parts]
    return make_dataclass(name, fields, namespace={"__module__": __name__})  # type: ignore[arg-type]


CarbonEmissionMeasurement = _measurement("CarbonEmissionMeasurement", "carbon_emission")
EnergyCostMeasurement = _measurement("EnergyCostMeasurement", "energy_cost")


class _PricedMonitor:
    """Measures windows, with the money or carbon of each GPU, CPU and memory. Unknown amounts are NaN."""

    _measurement: ClassVar[Any]
    _amount: ClassVar[str]  # of a `Footprint`

    def __init__(self, prices: Prices, *arguments: Any) -> None:
        gpu_indices, cpu_indices, sync_execution_with = arguments
        self.zeus_monitor = ZeusMonitor(
            gpu_indices, cpu_indices, sync_execution_with=sync_execution_with, prices=prices
        )

    def begin_window(self, key: str, sync_execution: bool = True) -> None:
        self.zeus_monitor.begin_window(key, sync_execution)

    def end_window(self, key: str, sync_execution: bool = True) -> Any:
        """Close a window and measure it."""
        found = self.zeus_monitor.end_window(key, sync_execution)

        def of(energies: Mapping[int, float] | None) -> dict[int, float] | None:
            if energies is None:
                return None
            amounts = {index: getattr(found.footprint_of(joules), self._amount) for index, joules in energies.items()}
            return {index: math.nan if known is None else known for index, known in amounts.items()}

        parts = (found.gpu_energy, found.cpu_energy, found.dram_energy)
        return self._measurement(found.time, *(value for energies in parts for value in (energies, of(energies))))


class CarbonEmissionMonitor(_PricedMonitor):
    """Measures the time, energy and carbon of windows.

    Args:
        carbon_intensity_provider: Tells the carbon intensity. What it does not know is unknown (NaN).
        gpu_indices: As of `ZeusMonitor`.
        cpu_indices: As of `ZeusMonitor`.
        sync_execution_with: As of `ZeusMonitor`.
    """

    _measurement, _amount = CarbonEmissionMeasurement, "gco2e"

    def __init__(
        self,
        carbon_intensity_provider: CarbonIntensityProvider,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        sync_execution_with: str | None = "torch",
    ) -> None:
        self.carbon_intensity_provider = carbon_intensity_provider
        prices = Prices(gco2e_per_kwh=_carbon_rate(carbon_intensity_provider))
        super().__init__(prices, gpu_indices, cpu_indices, sync_execution_with)


class EnergyCostMonitor(_PricedMonitor):
    """Measures the time, energy and energy cost of windows. Other arguments are as of `CarbonEmissionMonitor`.

    Args:
        electricity_price_provider: Tells the tariff. What it does not know is unknown (NaN).
    """

    _measurement, _amount = EnergyCostMeasurement, "money"

    def __init__(
        self,
        electricity_price_provider: ElectricityPriceProvider,
        gpu_indices: Sequence[int] | None = None,
        cpu_indices: Sequence[int] | None = None,
        sync_execution_with: str | None = "torch",
    ) -> None:
        self.electricity_price_provider = electricity_price_provider
        prices = Prices(per_kwh=_price_rate(electricity_price_provider))
        super().__init__(prices, gpu_indices, cpu_indices, sync_execution_with)


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
