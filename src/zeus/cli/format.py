"""How commands write numbers, bars, tables and names of trials, wherever they stand."""

from __future__ import annotations

import math
from collections.abc import Sequence

from zeus.tariff.text import digits, joules

BLOCKS = "▁▂▃▄▅▆▇█"


def plural(count: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "trial"), plural(12, "trial")
    ('1 trial', '12 trials')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def watts(limit: float | None) -> str:
    """A power limit.

    >>> watts(250.0), watts(187.5), watts(None)
    ('250 W', '187.5 W', '-')
    """
    return "-" if limit is None else f"{limit:g} W"


def power(drawn: float | None) -> str:
    """What a card draws, in whole watts.

    >>> power(237.6), power(None)
    ('238 W', '-')
    """
    return "-" if drawn is None else f"{drawn:.0f} W"


def seconds(number: float | None) -> str:
    """Seconds for people.

    >>> seconds(12.34), seconds(754.2), seconds(7530.0), seconds(None)
    ('12.3 s', '754 s', '2 h 06 min', '-')
    """
    if number is None or not math.isfinite(number):
        return "-"
    if number < 3600:
        return f"{digits(number)} s"
    minutes = round(number / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def joules_cell(number: float | None) -> str:
    """Joules in a table: a dash where they are not known.

    >>> joules_cell(3000.0), joules_cell(None)
    ('3.00 kJ', '-')
    """
    return "-" if number is None else joules(number)


def numbered(recurrence: int) -> str:
    """A recurrence's number; `?` until the service has given it one.

    >>> numbered(7), numbered(2**40 + 7)
    ('7', '?')
    """
    from zeus.client.api import ALONE  # slow to import

    return str(recurrence) if recurrence < ALONE else "?"


def which_trial(recurrence: int, attempt: int) -> str:
    """Which trial this is, for people.

    >>> which_trial(7, 2)
    'recurrence 7, try 2'
    """
    return f"recurrence {numbered(recurrence)}, try {attempt}"


def block(share: float) -> str:
    """A bar of this share of a character's height."""
    return BLOCKS[min(max(round(share * (len(BLOCKS) - 1)), 0), len(BLOCKS) - 1)]


def sparkline(values: Sequence[float | None], width: int = 30) -> str:
    """The newest values in a few characters, from 0 to the largest. An unknown value leaves a gap.

    >>> sparkline([8.0, 4.0, None, 1.0]), sparkline([])
    ('█▅ ▂', '')
    """
    newest = list(values)[-width:]
    top = max((value for value in newest if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else block(value / top) for value in newest)


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> list[str]:
    """The lines of a table in plain text.

    >>> plain_table(["job", "runs"], [["asr", "7"], ["sentiment", "12"]], numbers=["runs"])
    ['job        runs', 'asr           7', 'sentiment    12']
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in [headings, *rows]:
        cells = [
            text.rjust(width) if heading in numbers else text.ljust(width)
            for heading, text, width in zip(headings, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
