"""Rates per kilowatt-hour by the hour, and the money and carbon of energy that is spread over hours. Pure.

An hour is a whole number: hours since 1970-01-01 00:00 UTC. A rate that is not known at an hour is None, never 0. A sum
over hours then covers only a part of the energy, and says which part.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeAlias

from zeus.errors import InputError

JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600
MOST = 1e12  # a higher rate is a mistake
WHOLE = 1e-9  # a sum that lacks no more than this share of the energy covers all of it

log = logging.getLogger(__name__)


def hour_text(hour: int) -> str:
    """The beginning of an hour, in ISO 8601.

    >>> hour_text(498545)
    '2026-11-15T17:00:00Z'
    """
    return hour_time(hour).strftime("%Y-%m-%dT%H:%M:%SZ")


def hour_time(hour: int) -> datetime:
    """The beginning of an hour, in UTC."""
    return datetime.fromtimestamp(hour * SECONDS_PER_HOUR, UTC)


def hour_of(text: str) -> int:
    """The hour of a text such as 2026-11-15T17:00Z.

    Raises:
        InputError: It is no time, has no time zone, is not in UTC, or is not at the beginning of an hour.
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(f"{text!r} is not a time. Write hours as 2026-11-15T17:00Z.") from None
    offset = found.utcoffset()
    if offset is None or offset.total_seconds():
        raise InputError(f"{text!r} is not in UTC. Write hours as 2026-11-15T17:00Z.")
    seconds = found.timestamp()
    if seconds % SECONDS_PER_HOUR:
        raise InputError(f"{text!r} is not the beginning of an hour. Write hours as 2026-11-15T17:00Z.")
    return int(seconds) // SECONDS_PER_HOUR


class RateSource(Protocol):
    """Hourly rates, wherever they come from."""

    def at(self, hour: int, *, wait: bool = True) -> float | None:
        """The rate in this hour, or None if it is not known. Without `wait`, only what is known already."""


@dataclass(frozen=True, slots=True)
class HourlyRate:
    """Rates of single hours.

    >>> HourlyRate({498545: 312.5}).at(498545), HourlyRate({}).at(498545)
    (312.5, None)
    """

    values: Mapping[int, float]

    def at(self, hour: int, *, wait: bool = True) -> float | None:
        return self.values.get(hour)


Rate: TypeAlias = float | RateSource | Callable[[datetime], float | None]


def rate_at(rate: Rate | None, hour: int, least: float = -MOST, *, wait: bool = True) -> float | None:
    """The rate in this hour. A function is called with the beginning of the hour. If it fails, the rate is unknown.

    >>> rate_at(0.3, 498545), rate_at(lambda time: float(time.hour), 498545), rate_at(None, 498545)
    (0.3, 17.0, None)
    """
    if rate is None or isinstance(rate, int | float):
        return rate
    try:
        found = rate(hour_time(hour)) if callable(rate) else rate.at(hour, wait=wait)
        return None if found is None or not least <= found <= MOST else float(found)
    except Exception as failed:  # the user's function must not stop a training
        log.warning("the rate of %s is unknown: %s: %s", hour_text(hour), type(failed).__name__, failed)
        return None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Kilowatt-hours of some energy, with its money and its grams of CO2e.

    Where the rate of a part of the energy is unknown, the known amounts are those of the rest.

    >>> half = Footprint.of([(3.6e6, 0.3, None), (3.6e6, None, None)], "EUR", has_price=True)
    >>> half.kwh, half.money, half.known_money, half.money_covers
    (2.0, None, 0.3, 0.5)
    >>> half.gco2e, half.gco2e_covers
    (None, None)
    """

    joules: float = 0.0
    known_money: float | None = None  # of the part whose price is known; None: there is no such part
    priced_joules: float | None = None  # of that part; None: no price is given
    known_gco2e: float | None = None  # likewise for the carbon intensity
    rated_joules: float | None = None
    currency: str = ""
    by: str = ""  # "time": it was spread over several hours by time; empty: it lies in one hour

    @classmethod
    def of(
        cls,
        rows: Iterable[tuple[float, float | None, float | None]],
        currency: str = "",
        *,
        has_price: bool = False,
        has_carbon: bool = False,
        by: str = "",
    ) -> Footprint:
        """Add up rows of joules, price and gCO2e per kWh, one an hour. A rate of None is unknown."""
        rows = list(rows)
        money, priced = _amount((used, price) for used, price, _ in rows) if has_price else (None, None)
        gco2e, rated = _amount((used, grams) for used, _, grams in rows) if has_carbon else (None, None)
        return cls(sum(used for used, *_ in rows), money, priced, gco2e, rated, currency, by)

    def __add__(self, other: Footprint) -> Footprint:
        """The sum. Money in two currencies cannot be added: it is then unknown."""
        mixed = bool(self.known_money and other.known_money) and self.currency != other.currency
        return Footprint(
            self.joules + other.joules,
            None if mixed else _sum(self.known_money, other.known_money),
            0.0 if mixed else _sum(self.priced_joules, other.priced_joules),
            _sum(self.known_gco2e, other.known_gco2e),
            _sum(self.rated_joules, other.rated_joules),
            self.currency if self.known_money else other.currency or self.currency,
            self.by or other.by,
        )

    @property
    def kwh(self) -> float:
        return self.joules / JOULES_PER_KWH

    @property
    def money_covers(self) -> float | None:
        """The share of the energy whose price is known. None if no price is given, or the energy is unknown."""
        return self._share(self.priced_joules)

    @property
    def gco2e_covers(self) -> float | None:
        """The share of the energy whose carbon intensity is known, likewise."""
        return self._share(self.rated_joules)

    def _share(self, covered: float | None) -> float | None:
        share = None if covered is None else covered / self.joules if self.joules else 0.0
        return share if share is not None and math.isfinite(share) else None

    @property
    def money(self) -> float | None:
        """What all of the energy costs. None if no price is given, or the price of a part is unknown."""
        return self.known_money if (self.money_covers or 0.0) >= 1 - WHOLE else None

    @property
    def gco2e(self) -> float | None:
        """Grams of CO2 equivalent of all of the energy. None if not given, or unknown for a part."""
        return self.known_gco2e if (self.gco2e_covers or 0.0) >= 1 - WHOLE else None

    def worth(self, joules: float, error: float) -> PricedSaving:
        """What a saved energy with this standard error comes to, at the mean rates of this energy.

        >>> Footprint.of([(3.6e6, 0.3, None)], "EUR", has_price=True).worth(1.8e6, 9e5)
        PricedSaving(money=0.15, money_error=0.075, currency='EUR', gco2e=None, gco2e_error=None)
        """
        money, gco2e = self.money, self.gco2e  # both are None if this energy is 0 or unknown
        return PricedSaving(
            None if money is None else money / self.joules * joules,
            None if money is None else abs(money / self.joules * error),
            self.currency,
            None if gco2e is None else gco2e / self.joules * joules,
            None if gco2e is None else abs(gco2e / self.joules * error),
        )

    def to_json(self) -> dict[str, float | str | None]:
        """The keys that every report uses. Unknown is None."""
        names = ("money", "known_money", "money_covers", "currency", "gco2e", "known_gco2e", "gco2e_covers")
        return {"kwh": self.kwh if math.isfinite(self.kwh) else None, **{name: getattr(self, name) for name in names}}


def _amount(rows: Iterable[tuple[float, float | None]]) -> tuple[float | None, float]:
    """The amount of those rows of joules and rate whose rate is known, and their joules. None: there is none."""
    known = [(used, rate) for used, rate in rows if rate is not None]
    covered = sum(used for used, _ in known)
    return sum(used / JOULES_PER_KWH * rate for used, rate in known) if covered else None, covered


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True, slots=True)
class PricedSaving:
    """What a saving comes to in money and in grams of CO2e, with standard errors. None: not known."""

    money: float | None = None
    money_error: float | None = None
    currency: str = ""
    gco2e: float | None = None
    gco2e_error: float | None = None

    @classmethod
    def total(cls, jobs: Iterable[Iterable[PricedSaving]]) -> PricedSaving:
        """The sum over jobs, each with one or more savings. It is not known if a part is not.

        The errors of one job add up, as its savings rest on the same default. Those of different jobs are independent.
        Money in several currencies has no sum.

        >>> job = [PricedSaving(3.0, 1.5, "EUR"), PricedSaving(1.0, 1.5, "EUR")]
        >>> PricedSaving.total([job, [PricedSaving(2.0, 4.0, "EUR")]])
        PricedSaving(money=6.0, money_error=5.0, currency='EUR', gco2e=None, gco2e_error=None)
        """
        groups = [list(some) for some in jobs]
        savings = [one for some in groups for one in some]
        currencies = {one.currency for one in savings if one.money is not None}

        def total(name: str) -> tuple[float | None, float | None]:
            amounts = [getattr(one, name) for one in savings]
            if not amounts or None in amounts:
                return None, None
            errors = [sum(getattr(one, f"{name}_error") or 0.0 for one in some) for some in groups]
            return sum(amounts), math.hypot(*errors)

        money = total("money") if len(currencies) <= 1 else (None, None)
        gco2e = total("gco2e")
        return cls(*money, currencies.pop() if len(currencies) == 1 else "", *gco2e)


@dataclass(frozen=True, slots=True)
class Prices:
    """What a kilowatt-hour costs in money and CO2, as given by the user.

    Each rate is a number, hourly values, or a function that is called with the beginning of an hour (UTC) and returns
    the rate in that hour, or None.

    Raises:
        InputError: A rate is none of these, or a carbon intensity is below 0.

    >>> Prices(per_kwh=0.3).footprint({498545: 3.6e6}).money
    0.3
    """

    per_kwh: Rate | None = None
    currency: str = ""
    gco2e_per_kwh: Rate | None = None

    def __post_init__(self) -> None:
        for name, rate, least in (("per_kwh", self.per_kwh, -MOST), ("gco2e_per_kwh", self.gco2e_per_kwh, 0.0)):
            if rate is None or callable(rate) or hasattr(rate, "at"):
                continue
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not least <= rate <= MOST:
                wanted = f"a number from {least:g} to {MOST:g}, hourly values, or a function of the hour"
                raise InputError(f"{name}={rate!r}: give {wanted}.")

    @property
    def is_given(self) -> bool:
        """Whether there is a price or a carbon intensity."""
        return self.per_kwh is not None or self.gco2e_per_kwh is not None

    def at(self, hour: int, *, wait: bool = True) -> tuple[float | None, float | None]:
        """Price and gCO2e per kWh in this hour; None where unknown. Without `wait`, no network is waited for."""
        return rate_at(self.per_kwh, hour, wait=wait), rate_at(self.gco2e_per_kwh, hour, least=0.0, wait=wait)

    def footprint(self, joules_by_hour: Mapping[int, float]) -> Footprint:
        """The footprint of energy that was spread over hours."""
        rows = ((joules, *self.at(hour)) for hour, joules in sorted(joules_by_hour.items()))
        given = {"has_price": self.per_kwh is not None, "has_carbon": self.gco2e_per_kwh is not None}
        return Footprint.of(rows, self.currency, **given, by="time" if len(joules_by_hour) > 1 else "")


def spread(begin: float, end: float, joules: float) -> dict[int, float]:
    """Joules by hour, if the power was constant between two times, in seconds since 1970.

    All joules are in the first hour if the end is not after the beginning, as when the clock was set back.

    >>> spread(3600 * 7 + 1800, 3600 * 9, 300.0)
    {7: 100.0, 8: 200.0}
    """
    first, last = int(begin // SECONDS_PER_HOUR), math.ceil(end / SECONDS_PER_HOUR) - 1
    if last <= first:
        return {first: joules}
    found = {}
    for hour in range(first, last + 1):
        inside = min(end, (hour + 1) * SECONDS_PER_HOUR) - max(begin, hour * SECONDS_PER_HOUR)
        found[hour] = joules * inside / (end - begin)
    return found
