"""`zeus.monitor.carbon` and `zeus.monitor.price`: the names and call shapes that users of the existing package know."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.cards import VirtualCards
from zeus.device.clock import VirtualClock
from zeus.errors import NotHere
from zeus.monitor.carbon import (
    CarbonEmissionMeasurement,
    CarbonEmissionMonitor,
    CarbonIntensityProvider,
    ElectrictyMapsClient,
    ZeusCarbonIntensityNotFoundError,
)
from zeus.monitor.price import ElectricityPriceProvider, EnergyCostMeasurement, EnergyCostMonitor

FIRST = datetime(2023, 11, 14, 22, tzinfo=UTC)  # the hour in which virtual clocks begin, on a Tuesday
LEFT = 3600 - VirtualClock.EPOCH % 3600


@pytest.fixture
def machine(virtual_cards: VirtualCards) -> Any:
    return virtual_cards("v100x2?clock=virtual&cpu=100")[0].machine


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time of this process."""
    with monkeypatch.context() as change:
        change.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


class Known(CarbonIntensityProvider):
    """Two hours, and nothing else."""

    def __init__(self) -> None:
        self.asked = 0

    def get_current_carbon_intensity(self) -> float:
        raise ZeusCarbonIntensityNotFoundError("not known")

    def get_recent_carbon_intensity(self) -> dict[datetime, float]:
        self.asked += 1
        return {FIRST: 300.0, FIRST + timedelta(hours=1): 500.0}

    @property
    def update_period(self) -> timedelta:
        return timedelta(hours=1)

    @property
    def history_length(self) -> int:
        return 2


class Tariff(ElectricityPriceProvider):
    """Cheap before 23 o'clock on weekdays."""

    def get_current_electricity_prices(self) -> dict[str, list[Any]]:
        weekday = [[0] * 23 + [1]] * 12
        return {
            "energy_rate_structure": [[{"rate": 0.2}], [{"rate": 0.4}]],
            "energy_weekday_schedule": weekday,
            "energy_weekend_schedule": [[1] * 24] * 12,
        }


def test_carbon_of_each_gpu_and_cpu_is_that_of_its_hours(machine: Any) -> None:
    provider = Known()
    monitor = CarbonEmissionMonitor(carbon_intensity_provider=provider, gpu_indices=[0, 1])
    monitor.begin_window("train", sync_execution=False)
    machine.run([0, 1], seconds=LEFT + 1800, watts=[200.0, 100.0])
    found = monitor.end_window("train", sync_execution=False)
    assert isinstance(found, CarbonEmissionMeasurement)
    kwh = (LEFT / 3.6e6, 1800 / 3.6e6)  # per watt
    by_hand = kwh[0] * 300 + kwh[1] * 500
    assert found.time == pytest.approx(LEFT + 1800)
    assert found.gpu_energy == {0: pytest.approx(200 * (LEFT + 1800)), 1: pytest.approx(100 * (LEFT + 1800))}
    assert found.gpu_carbon_emission == {0: pytest.approx(200 * by_hand), 1: pytest.approx(100 * by_hand)}
    assert found.cpu_carbon_emission == {0: pytest.approx(100 * by_hand)}
    assert found.dram_energy is None and found.dram_carbon_emission is None
    assert provider.asked == 1


def test_an_hour_that_the_provider_does_not_know_is_nan_not_0(machine: Any) -> None:
    monitor = CarbonEmissionMonitor(Known())
    monitor.begin_window("train")
    machine.run([0, 1], seconds=LEFT + 3600 + 60, watts=200.0)
    found = monitor.end_window("train")
    assert all(math.isnan(grams) for grams in found.gpu_carbon_emission.values())
    assert found.gpu_energy[0] == pytest.approx(200 * (LEFT + 3660))


@pytest.mark.parametrize(
    ("zone", "rates"),
    [("UTC", (0.2, 0.4)), ("EST5EDT,M3.2.0,M11.1.0", (0.2, 0.2)), ("<+02>-2", (0.2, 0.2))],
    indirect=["zone"],
)
def test_the_cost_follows_the_tariffs_periods_in_local_time(
    machine: Any, zone: None, rates: tuple[float, float]
) -> None:
    monitor = EnergyCostMonitor(electricity_price_provider=Tariff())
    monitor.begin_window("train")
    machine.run([0, 1], seconds=LEFT + 1800, watts=[200.0, 100.0])
    found = monitor.end_window("train")
    assert isinstance(found, EnergyCostMeasurement)
    by_hand = LEFT / 3.6e6 * rates[0] + 1800 / 3.6e6 * rates[1]
    assert found.gpu_energy_cost == {0: pytest.approx(200 * by_hand), 1: pytest.approx(100 * by_hand)}
    assert found.cpu_energy_cost == {0: pytest.approx(100 * by_hand)}


def test_a_client_of_a_tariff_service_says_what_to_use_instead() -> None:
    with pytest.raises(NotHere, match=r"OpenEIClient .* is not here: .* Set ZEUS_PRICE_PER_KWH"):
        from zeus.monitor.price import OpenEIClient  # noqa: F401
    import zeus.monitor.price as price

    assert not hasattr(price, "nonsense")


def test_windows_follow_the_rules_of_the_monitor(machine: Any) -> None:
    monitor = EnergyCostMonitor(Tariff())
    monitor.begin_window("a")
    with pytest.raises(ValueError, match="'a' is already open"):
        monitor.begin_window("a")
    monitor.end_window("a")
    with pytest.raises(ValueError, match="'a' is not open"):
        monitor.end_window("a")


def test_the_call_shapes_are_the_known_ones() -> None:
    shape = ["gpu_indices", "cpu_indices", "sync_execution_with"]
    for monitor, provider in (
        (CarbonEmissionMonitor, "carbon_intensity_provider"),
        (EnergyCostMonitor, "electricity_price_provider"),
    ):
        assert list(inspect.signature(monitor).parameters) == [provider, *shape]
    assert list(inspect.signature(ElectrictyMapsClient).parameters)[:3] == [
        *("location", "estimate", "emission_factor_type"),
    ]


def test_electricity_maps_is_asked_only_when_it_is_used_and_may_be_away() -> None:
    client = ElectrictyMapsClient((48.1, 11.6), estimate=True, url="http://127.0.0.1:9/history")
    assert (client.update_period, client.history_length) == (timedelta(hours=1), 24)
    with pytest.raises(ZeusCarbonIntensityNotFoundError, match=r"not known now\. Set ZEUS_GCO2E_TOKEN"):
        client.get_current_carbon_intensity()
