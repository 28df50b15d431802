"""How many examples a law is tried on."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100  # of a law that says nothing, where time does not matter


def examples(number: int) -> int:
    """So many under the profile `dice`, fewer or more under others (tests/conftest.py)."""
    return max(10, round(number * settings().max_examples / USUAL))
