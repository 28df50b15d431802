"""Cards and loads."""

from __future__ import annotations

from zeus.device.physics import Card, Load
from zeus.errors import InputError

CARDS = {"v100": Card("Virtual V100", 100, 250, 250, 70), "a40": Card("Virtual A40", 100, 300, 300, 60)}


def card(name: str) -> Card:
    """A card by name."""
    if name not in CARDS:
        raise InputError(f"no virtual card '{name}'; known are {', '.join(CARDS)}.")
    return CARDS[name]


def load(card_name: str, load_name: str) -> Load:
    """A load by name."""
    return Load(1e-3)
