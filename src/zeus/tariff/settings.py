"""The user's price, currency and carbon intensity, from the environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from zeus import settings
from zeus.errors import InputError
from zeus.tariff.hourly_file import read_hourly
from zeus.tariff.online import online_rate
from zeus.tariff.rates import Prices, Rate


def prices(environ: Mapping[str, str] = settings.HERE) -> Prices:
    """ZEUS_PRICE_PER_KWH, ZEUS_CURRENCY and ZEUS_GCO2E_PER_KWH.

    Raises:
        InputError: A rate is neither a number nor a file of hourly values.
    """
    price, carbon = settings.price_per_kwh(environ), settings.gco2e_per_kwh(environ)
    return Prices(
        read_rate(price, settings.price_per_kwh.variable) if price else None,
        settings.currency(environ),
        read_rate(carbon, settings.gco2e_per_kwh.variable, carbon=True, token=settings.gco2e_token(environ))
        if carbon
        else None,
    )


def read_rate(text: str, what: str, *, carbon: bool = False, token: str = "") -> Rate:
    """A rate as a user writes it: a number, a CSV or JSON file of hourly values, or for carbon the URL of a source.

    Raises:
        InputError: It is none of these, or the file is wrong.

    >>> read_rate("0.3", "ZEUS_PRICE_PER_KWH")
    0.3
    """
    least = 0.0 if carbon else -math.inf  # electricity is sometimes sold for less than nothing
    if text.startswith(("http://", "https://")):
        if not carbon:
            raise InputError(f"{what}={text!r}: give a number, or a CSV or JSON file of hourly values.")
        return online_rate(text, token)
    try:
        number = float(text)
    except ValueError:
        return read_hourly(Path(text), what, least)
    if not math.isfinite(number) or number < least:
        bound = f" of at least {least:g}" if carbon else ""
        raise InputError(f"{what}={text!r}: give a number{bound}, or a CSV or JSON file of hourly values.")
    return number
