"""Reads expected.toml, the numbers of the paper."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

Kind = Literal["paper", "simulator", "setting"]
Basis = Literal["exact", "digits", "choice", "scatter"]

SEEDS: Final = "seeds"  # a tolerance: the paper's number must lie in our range over seeds


@dataclass(frozen=True, slots=True)
class Expected:
    """One number of the paper. The head of expected.toml explains the fields."""

    id: str
    quantity: str
    paper: float | str
    unit: str
    where: str
    tolerance: float | str | None = None
    note: str = ""
    missing: str = ""
    basis: Basis = "choice"  # where a tolerance above 0 comes from
    kind: Kind = "paper"

    @property
    def tolerance_basis(self) -> Basis | None:
        """Where the tolerance comes from. None for text and for what is not compared."""
        if self.tolerance is None:
            return None
        if self.tolerance == SEEDS:
            return "scatter"
        return self.basis if self.tolerance else "exact"

    @property
    def figure(self) -> str:
        """The figure, table or section of this number."""
        return self.id.partition(".")[0]


def read() -> list[Expected]:
    """Read all numbers, in the order of the file."""
    tables = tomllib.loads((files(__package__) / "expected.toml").read_text(encoding="utf-8"))
    return [
        Expected(f"{figure}.{name}", **entry) for figure, entries in tables.items() for name, entry in entries.items()
    ]
