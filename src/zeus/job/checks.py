"""Checks of a value where it is made: what is wrong, with which value, and what to give instead."""

from __future__ import annotations

import math

from zeus.errors import InputError


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number of at least this."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


NUMBER = (int, float)


def is_finite(value: object) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, NUMBER) and not isinstance(value, bool) and math.isfinite(value)


def need(sound: bool, name: str, value: object, wanted: str) -> None:
    """Raise InputError, which says what to give, unless the value is sound."""
    if not sound:
        raise InputError(f"{name}={value!r}: give {wanted}.")
