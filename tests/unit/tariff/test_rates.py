"""Energy split over hours, and what it comes to: laws, and what is said where a rate is unknown."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.errors import InputError
from zeus.tariff.rates import Footprint, HourlyRate, Prices, hour_of, hour_text, rate_at, spread
from zeus.tariff.text import footprint_text

HOURS = st.integers(400_000, 600_000)
JOULES = st.floats(0, 1e12)
RATES = st.none() | st.floats(0, 1e4)
ROWS = st.lists(st.tuples(JOULES, RATES, RATES), max_size=6)
BEGINS = st.floats(1.6e9, 1.9e9)  # in seconds since 1970


@given(HOURS)
def test_an_hour_is_read_as_it_is_written(hour: int) -> None:
    assert hour_of(hour_text(hour)) == hour
    assert hour_of(hour_text(hour).replace("Z", "+00:00")) == hour


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "not a time"),
        ("2026-11-15T17:00", "not in UTC"),
        ("2026-11-15T17:00+01:00", "not in UTC"),
        ("2026-11-15T17:30Z", "not the beginning of an hour"),
    ],
)
def test_a_time_that_is_no_hour_in_utc_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        hour_of(text)


@given(BEGINS, st.floats(-1e5, 1e5), JOULES)
def test_no_energy_is_lost_when_it_is_spread_over_hours(begin: float, seconds: float, joules: float) -> None:
    found = spread(begin, begin + seconds, joules)
    assert sum(found.values()) == pytest.approx(joules)
    assert min(found) == int(begin // 3600)
    assert max(found) <= max(begin, begin + seconds) // 3600


@given(ROWS, ROWS)
def test_sums_of_footprints_are_footprints_of_sums(
    one: list[tuple[float, float | None, float | None]], other: list[tuple[float, float | None, float | None]]
) -> None:
    def of(rows: list[tuple[float, float | None, float | None]]) -> Footprint:
        return Footprint.of(rows, "EUR", has_price=True, has_carbon=True)

    both, whole = of(one) + of(other), of(one + other)
    assert both.kwh == pytest.approx(whole.kwh)
    assert both.known_gco2e == (None if whole.known_gco2e is None else pytest.approx(whole.known_gco2e))
    assert both.money_covers == (None if whole.money_covers is None else pytest.approx(whole.money_covers))


@given(ROWS)
def test_an_unknown_rate_makes_the_sum_unknown_never_smaller(
    rows: list[tuple[float, float | None, float | None]],
) -> None:
    found = Footprint.of(rows, "EUR", has_price=True)
    unknown = sum(joules for joules, price, _ in rows if price is None)
    total = sum(joules for joules, *_ in rows)
    if total and unknown / total > 1e-6:
        assert found.money is None
        assert found.money_covers is not None and found.money_covers < 1
    elif total and not unknown:
        assert found.money == found.known_money


def test_money_in_two_currencies_is_not_added() -> None:
    euros, pounds = (Footprint.of([(3.6e6, 0.3, None)], name, has_price=True) for name in ("EUR", "GBP"))
    assert (euros + pounds).money is None
    assert (euros + euros).money == pytest.approx(0.6)


def test_a_rate_may_be_a_number_hourly_values_or_a_function() -> None:
    hour = hour_of("2026-11-15T17:00Z")
    assert rate_at(0.3, hour) == 0.3
    assert rate_at(HourlyRate({hour: 0.4}), hour) == 0.4
    assert rate_at(HourlyRate({}), hour) is None
    asked: list[datetime] = []

    def function(time: datetime) -> float:
        asked.append(time)
        return 0.5

    assert rate_at(function, hour) == 0.5
    assert asked == [datetime(2026, 11, 15, 17, tzinfo=UTC)]


def fails(_: datetime) -> float:
    raise RuntimeError("no such zone")


@pytest.mark.parametrize("function", [fails, lambda _: float("nan"), lambda _: None, lambda _: -1.0, lambda _: 1e300])
def test_a_function_that_does_not_know_leaves_the_hour_unknown(function) -> None:  # type: ignore[no-untyped-def]
    assert Prices(gco2e_per_kwh=function).at(498545) == (None, None)
    assert Prices(gco2e_per_kwh=function).footprint({498545: 3.6e6}).gco2e_covers == 0.0


def test_what_covers_only_a_part_says_so() -> None:
    found = Footprint.of([(5.4e6, 0.3, 400.0), (1.8e6, None, 400.0)], "EUR", has_price=True, has_carbon=True)
    assert (
        footprint_text(found.to_json())
        == "2 kWh, 0.45 EUR for 75 % of it (the price of the rest is unknown), 800 gCO2e"
    )
    assert footprint_text(Footprint(3.6e6).to_json()) == ""


@pytest.mark.parametrize("rate", ["0.3", True, math.nan, math.inf])
def test_a_rate_that_is_none_is_refused_at_once(rate: Any) -> None:
    for name in ("per_kwh", "gco2e_per_kwh"):
        with pytest.raises(InputError, match=f"{name}={rate!r}: give a number from"):
            Prices(**{name: rate})


def test_a_price_may_be_negative_and_a_carbon_intensity_may_not() -> None:
    assert Prices(per_kwh=-0.1).at(7) == Prices(lambda _: -0.1).at(7) == (-0.1, None)
    assert Prices(lambda _: -0.1).footprint({498545: 3.6e6}).money == pytest.approx(-0.1)
    with pytest.raises(InputError, match="gco2e_per_kwh=-1: give a number from 0"):
        Prices(gco2e_per_kwh=-1)
