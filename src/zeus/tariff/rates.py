"""Rates per kilowatt-hour by the hour, and what energy spread over hours comes to. Pure.

An hour is a whole number: hours since 1970-01-01 00:00 UTC. A rate that is not known at an hour is None, never 0. A sum
over hours then covers only a part of the energy, and says which part.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol, TypeAlias

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
class KnownPart:
    """An amount (money or grams of CO2e), and the joules that it is for."""

    amount: float = 0.0
    joules: float = 0.0

    def __add__(self, other: KnownPart) -> KnownPart:
        return KnownPart(self.amount + other.amount, self.joules + other.joules)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What some energy comes to: kilowatt-hours, money and grams of CO2e.

    >>> half = Footprint.of([(3.6e6, 0.3, None), (3.6e6, None, None)], "EUR", has_price=True)
    >>> half.kwh, half.money, half.known_money, half.money_covers
    (2.0, None, 0.3, 0.5)
    >>> half.gco2e, half.gco2e_covers
    (None, None)
    """

    joules: float = 0.0
    price: KnownPart | None = None  # None: no price is given
    carbon: KnownPart | None = None
    currency: str = ""
    by: str = ""  # how the energy was split over hours: "curve" or "time"; empty if it lies in one hour

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
        joules, price, carbon = 0.0, KnownPart(), KnownPart()
        for used, per_kwh, grams in rows:
            joules += used
            price += _part(used, per_kwh)
            carbon += _part(used, grams)
        return cls(joules, price if has_price else None, carbon if has_carbon else None, currency, by)

    def __add__(self, other: Footprint) -> Footprint:
        """The sum. Money in two currencies cannot be added: it is then unknown."""
        mixed = bool(self.known_money and other.known_money) and self.currency != other.currency
        price = _sum(self.price, other.price)
        return Footprint(
            self.joules + other.joules,
            KnownPart() if mixed else price,
            _sum(self.carbon, other.carbon),
            self.currency if self.known_money else other.currency or self.currency,
            "time" if "time" in (self.by, other.by) else self.by or other.by,
        )

    @property
    def kwh(self) -> float:
        return self.joules / JOULES_PER_KWH

    @property
    def money(self) -> float | None:
        """What all of the energy costs. None if no price is given, or the price of a part is unknown."""
        return self._whole(self.price)

    @property
    def gco2e(self) -> float | None:
        """Grams of CO2 equivalent of all of the energy. None if not given, or unknown for a part."""
        return self._whole(self.carbon)

    @property
    def known_money(self) -> float | None:
        """What the part of the energy costs whose price is known. None if there is no such part."""
        return None if self.price is None or not self.price.joules else self.price.amount

    @property
    def known_gco2e(self) -> float | None:
        return None if self.carbon is None or not self.carbon.joules else self.carbon.amount

    @property
    def money_covers(self) -> float | None:
        """The share of the energy whose price is known. None if no price is given."""
        return self._share(self.price)

    @property
    def gco2e_covers(self) -> float | None:
        return self._share(self.carbon)

    def scaled(self, joules: float) -> Footprint:
        """The same mean rates, for another energy.

        >>> Footprint.of([(3.6e6, 0.3, None)], has_price=True).scaled(1.8e6).money
        0.15
        """
        factor = joules / self.joules if self.joules else 0.0
        price, carbon = (
            None if part is None else KnownPart(part.amount * factor, part.joules * factor)
            for part in (self.price, self.carbon)
        )
        return Footprint(joules, price, carbon, self.currency, self.by)

    def _share(self, part: KnownPart | None) -> float | None:
        if part is None or not math.isfinite(self.joules):
            return None
        return part.joules / self.joules if self.joules else 0.0

    def _whole(self, part: KnownPart | None) -> float | None:
        share = self._share(part)
        return None if part is None or share is None or share < 1 - WHOLE else part.amount

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Footprint:
        """Read what `to_json` wrote.

        >>> one = Footprint.of([(3.6e6, 0.3, None), (3.6e6, None, None)], "EUR", has_price=True)
        >>> Footprint.of_json(one.to_json()) == one
        True
        """
        joules = math.nan if told["kwh"] is None else told["kwh"] * JOULES_PER_KWH
        price, carbon = (
            None
            if told[f"{name}_covers"] is None
            else KnownPart(told[f"known_{name}"] or 0.0, told[f"{name}_covers"] * joules)
            for name in ("money", "gco2e")
        )
        return cls(joules, price, carbon, told["currency"], told.get("hours_by") or "")

    def to_json(self) -> dict[str, float | str | None]:
        """The keys that every report uses. Unknown is None."""
        names = ("money", "known_money", "money_covers", "currency", "gco2e", "known_gco2e", "gco2e_covers")
        return {"kwh": self.kwh if math.isfinite(self.kwh) else None, **{name: getattr(self, name) for name in names}}


def _part(joules: float, rate: float | None) -> KnownPart:
    return KnownPart() if rate is None else KnownPart(joules / JOULES_PER_KWH * rate, joules)


def _sum(one: KnownPart | None, other: KnownPart | None) -> KnownPart | None:
    return other if one is None else one if other is None else one + other


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
    gco2e_per_kwh: Rate | None = field(default=None)

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

    def footprint(self, joules_by_hour: Mapping[int, float], by: str = "") -> Footprint:
        """What energy spread over hours comes to."""
        rows = ((joules, *self.at(hour)) for hour, joules in sorted(joules_by_hour.items()))
        given = {"has_price": self.per_kwh is not None, "has_carbon": self.gco2e_per_kwh is not None}
        return Footprint.of(rows, self.currency, **given, by=by)


def spread(stretches: Iterable[tuple[float, float, float]], joules: dict[int, float] | None = None) -> dict[int, float]:
    """Joules by hour of stretches (begin, end, joules), in seconds since 1970. Inside a stretch, power is constant.

    >>> spread([(3600 * 7 + 1800, 3600 * 8 + 3600, 300.0)])
    {7: 100.0, 8: 200.0}
    """
    found = {} if joules is None else joules
    for begin, end, used in stretches:
        first = int(begin // SECONDS_PER_HOUR)
        last = max(first, math.ceil(end / SECONDS_PER_HOUR) - 1)
        for hour in range(first, last + 1):
            inside = min(end, (hour + 1) * SECONDS_PER_HOUR) - max(begin, hour * SECONDS_PER_HOUR)
            share = inside / (end - begin) if end > begin else 1.0
            found[hour] = found.get(hour, 0.0) + used * share
    return found
