"""Validation of values where they are created. A message names the value and says what to give instead."""

from __future__ import annotations

import re

from zeus.cost import LEAST, MOST
from zeus.errors import InputError

__all__ = ["LEAST", "MOST", "is_number", "is_unicode", "is_whole", "need", "need_job_id", "need_whole", "whole_wanted"]

NAME_LENGTH = 200
MOST_SIZES = 1000  # of a job: a policy compares each with each
# No control characters, and none that break or reverse a line: with those, one name could look like another.
SHOWN = r"[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
DOTS = (".", "..")  # browsers and proxies take them for folders

MOST_WHOLE = 2**53  # JSON readers round larger whole numbers
NUMBER = (int, float)
LONGEST = 200  # characters of a value that a message quotes


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number from `least` to 2**53. A bool is not a number."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_WHOLE


def is_number(value: object, least: float = -MOST, most: float = MOST) -> bool:
    """Whether it is a finite number in this range. A bool is not a number.

    >>> is_number(1e308), is_number(float("nan")), is_number(10**400), is_number("5"), is_number(5)
    (False, False, False, False, True)
    """
    return isinstance(value, NUMBER) and not isinstance(value, bool) and least <= value <= most


def need(sound: bool, name: str, value: object, wanted: str) -> None:
    """Raise InputError ("name=value: give wanted.") unless the value is sound."""
    if not sound:
        raise InputError(f"{name}={_shown(value)}: give {wanted}.")


def need_whole(name: str, value: object, least: int) -> None:
    """Raise InputError unless the value is a whole number from `least` to 2**53."""
    need(is_whole(value, least), name, value, whole_wanted(value, least))


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can hold this text. It cannot hold half of a letter, which Python makes of broken UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def need_job_id(job_id: str) -> None:
    """Raise InputError unless a service can show a job of this name."""
    sound = 1 <= len(job_id) <= NAME_LENGTH and re.fullmatch(f"{SHOWN}*", job_id) and job_id not in DOTS
    wanted = f"a name of 1 to {NAME_LENGTH} characters on one line, other than . and .."
    need(bool(sound) and is_unicode(job_id), "job_id", job_id, wanted)


def whole_wanted(value: object, least: int) -> str:
    """The whole number to give instead of this value.

    >>> whole_wanted(0, 1)
    'a whole number of at least 1'
    >>> whole_wanted(2**60, 1)
    'a whole number of at most 2**53 (9007199254740992)'
    """
    if isinstance(value, int) and value > MOST_WHOLE:
        return f"a whole number of at most 2**53 ({MOST_WHOLE})"
    return f"a whole number of at least {least}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
