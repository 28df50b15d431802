"""Energy, money and carbon for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from zeus.tariff.rates import JOULES_PER_KWH


def joules(number: float | None, of: float = 0.0) -> str:
    """Joules for people: kWh from 0.1 kWh up. The error `of` a number is in kWh if the number is.

    >>> joules(3000.0), joules(12345678.0), joules(999.7), joules(-1e-9), joules(float("nan"))
    ('3.00 kJ', '3.43 kWh', '1.00 kJ', '0.00 J', 'unavailable')
    >>> joules(290e3), joules(290e3, of=12345678.0)
    ('290 kJ', '0.08 kWh')
    """
    if number is None or not math.isfinite(number):
        return "unavailable"
    if max(abs(number), abs(of)) >= 0.1 * JOULES_PER_KWH:
        return f"{digits(number / JOULES_PER_KWH)} kWh"
    return f"{digits(number / 1e3)} kJ" if abs(number) >= 999.5 else f"{digits(number)} J"


def digits(number: float) -> str:
    """A number with three digits.

    >>> digits(1.2345), digits(123.45), digits(-1e-9)
    ('1.23', '123', '0.00')
    """
    whole = len(str(int(abs(number))))
    return f"{number:z.{max(0, 3 - whole)}f}"


def money(amount: float, currency: str, error: float | None = None) -> str:
    """Money for people, with its standard error if one is given.

    >>> money(0.417, "EUR"), money(-2e-7, "EUR"), money(0.417, "EUR", 0.023), money(0.417, "EUR", 0.00123)
    ('0.42 EUR', 'less than 0.01 EUR', '0.42 ± 0.02 EUR', '0.417 ± 0.001 EUR')
    >>> money(2e-7, "EUR", 1e-8), money(2e-7, "EUR", 0.01)
    ('less than 0.01 EUR', '0.00 ± 0.01 EUR')
    """
    if max(abs(amount), error or 0.0) < 0.005:
        return f"less than 0.01 {currency}".rstrip()
    places = math.ceil(-math.log10(error)) if error and 5e-5 <= error < 0.005 else 2
    unsure = "" if error is None else f" ± {error:.{places}f}"
    return f"{amount:z.{places}f}{unsure} {currency}".rstrip()


def grams(amount: float, error: float | None = None) -> str:
    """Grams of CO2 equivalent for people, with their standard error if one is given.

    >>> grams(3.14159), grams(12345.0), grams(12345.0, 678.0), grams(3.14, 123.0)
    ('3.14 gCO2e', '12.3 kgCO2e', '12.3 ± 0.68 kgCO2e', '3.14 ± 120 gCO2e')
    """
    factor, unit = (1000, "kgCO2e") if max(abs(amount), error or 0.0) >= 1000 else (1, "gCO2e")
    unsure = "" if error is None else f" ± {float(f'{error / factor:.2g}'):g}"
    return f"{amount / factor:.3g}{unsure} {unit}"


def footprint_text(told: Mapping[str, Any]) -> str:
    """Money and carbon for people, from the keys of `Footprint.to_json`. Empty if neither rate is given.

    >>> told = {"kwh": 2.0, "money": None, "known_money": 0.3, "money_covers": 0.5, "currency": "EUR"}
    >>> footprint_text({**told, "gco2e": 700.0, "known_gco2e": 700.0, "gco2e_covers": 1.0})
    '2 kWh, 0.30 EUR for 50 % of it (the price of the rest is unknown), 700 gCO2e'
    >>> footprint_text({**told, "known_money": None, "money_covers": 0.0, "gco2e_covers": None})
    '2 kWh, money unknown'
    """
    parts = [
        _amount(told, "money", "price", "money", lambda amount: money(amount, str(told.get("currency") or ""))),
        _amount(told, "gco2e", "intensity", "CO2e", grams),
    ]
    found = [part for part in parts if part]
    if not found:
        return ""
    kwh = told.get("kwh")
    return ", ".join([*([] if kwh is None else [f"{kwh:.3g} kWh"]), *found])


def _amount(told: Mapping[str, Any], name: str, rate: str, noun: str, shown: Any) -> str:
    share = told.get(f"{name}_covers")
    if share is None:
        return ""
    if told.get(name) is not None:
        return str(shown(told[name]))
    if told.get(f"known_{name}") is None:
        return f"{noun} unknown"
    percent = f"{share:.0%}".replace("%", " %")
    return f"{shown(told[f'known_{name}'])} for {percent} of it (the {rate} of the rest is unknown)"
