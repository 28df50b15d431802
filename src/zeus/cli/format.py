"""How commands write numbers and names of trials, wherever they stand."""

from __future__ import annotations

from zeus.tariff.text import joules


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
