"""Reads expected.toml: what the paper says, number by number."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Expected:
    """One number of the paper; expected.toml explains the fields."""

    id: str
    quantity: str
    paper: float | str
    unit: str
    where: str
    tolerance: float | str | None = None
    note: str = ""
    missing: str = ""

    @property
    def figure(self) -> str:
        """The figure, table or section it belongs to."""
        return self.id.partition(".")[0]


def read() -> list[Expected]:
    """All of them, in the paper's order as far as the file keeps it."""
    tables = tomllib.loads((files(__package__) / "expected.toml").read_text(encoding="utf-8"))
    return [
        Expected(f"{figure}.{name}", **entry) for figure, entries in tables.items() for name, entry in entries.items()
    ]
