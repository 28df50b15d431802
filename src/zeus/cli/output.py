"""How commands print: JSON that any reader takes (unknown is null, never NaN), joules that people read."""

from __future__ import annotations

import json
import math
from typing import Any

import click


def known(number: float | None) -> float | None:
    """The number, or None where it is not known."""
    return None if number is None or not math.isfinite(number) else number


def print_json(value: Any) -> None:
    """JSON alone on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def joules(number: float | None) -> str:
    """Joules for people.

    >>> joules(3000.0), joules(12345678.0), joules(float("nan"))
    ('3.00 kJ', '12.3 MJ', 'unavailable')
    """
    if number is None or not math.isfinite(number):
        return "unavailable"
    for unit, size in (("MJ", 1e6), ("kJ", 1e3)):
        if abs(number) >= size:
            return f"{_digits(number / size)} {unit}"
    return f"{_digits(number)} J"


def _digits(number: float) -> str:
    whole = len(str(int(abs(number))))
    return f"{number:.{max(0, 3 - whole)}f}"
