"""Reads the numbers of the line that a training prints at its end."""

from __future__ import annotations

import re


def saved_joules(line: str) -> float:
    """The energy of "saved 21 % ± 2 % energy (1.20 kJ ± 60 J)"."""
    found = re.search(r"energy \(([0-9.]+) (k?)J ±", line)
    assert found is not None, line
    return float(found[1]) * (1000.0 if found[2] else 1.0)
