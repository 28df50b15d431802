"""Checks of a value where it is made: what is wrong, with which value, and what to give instead."""

from __future__ import annotations

from zeus.cost import LEAST, MOST
from zeus.errors import InputError

__all__ = ["LEAST", "MOST", "is_number", "is_whole", "need"]

MOST_WHOLE = 2**53  # above it JSON readers round
NUMBER = (int, float)
LONGEST = 200  # of a value in a message


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number of at least this, and none that only a slip could have made."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_WHOLE


def is_number(value: object, least: float = -MOST, most: float = MOST) -> bool:
    """Whether it is a number in this range, by default in that of all real things.

    >>> is_number(1e308), is_number(float("nan")), is_number(10**400), is_number("5"), is_number(5)
    (False, False, False, False, True)
    """
    return isinstance(value, NUMBER) and not isinstance(value, bool) and least <= value <= most


def need(sound: bool, name: str, value: object, wanted: str) -> None:
    """Raise InputError, which says what to give, unless the value is sound."""
    if not sound:
        raise InputError(f"{name}={_shown(value)}: give {wanted}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
