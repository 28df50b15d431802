"""Compares each number of the paper (expected.toml) with ours. A row without a number of ours says why."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, Literal

from zeus.reproduce.panel import Number

Kind = Literal["paper", "input", "simulator", "setting"]
Basis = Literal["exact", "digits", "choice", "scatter"]

SEEDS: Final = "seeds"  # a tolerance: the paper's number must lie in our range over seeds
ROUNDING: Final = 1e-9  # a difference equal to the tolerance must count as within it


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


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One number of the paper compared with ours: a row of the report."""

    expected: Expected
    ours: float | str | None
    tolerance: float | None
    within: bool | None  # None: not computed, or not compared
    note: str

    def to_json(self) -> dict[str, Any]:
        one = self.expected
        return {
            "id": one.id,
            "quantity": one.quantity,
            "paper": one.paper,
            "ours": self.ours,
            "unit": one.unit,
            "tolerance": self.tolerance,
            "within": self.within,
            "where": one.where,
            "note": self.note,
            "kind": one.kind,
            "tolerance_basis": None if self.tolerance is None else one.tolerance_basis,
        }


def compare(expected: Expected, number: Number | None) -> ComparedRow:
    """Compare one number of the paper with ours."""
    if expected.missing or number is None or number.value is None:
        why = expected.missing or (number.note if number else "") or "Not part of this run."
        return ComparedRow(expected, None, None, None, why)
    tolerance, within = (None, None) if expected.kind == "setting" else _judge(expected, number)
    note = " ".join(part for part in (expected.note, number.note, _range(number)) if part)
    return ComparedRow(expected, number.value, tolerance, within, note)


def table(expected: Iterable[Expected], numbers: Iterable[Number]) -> list[ComparedRow]:
    """Compare all numbers, in the order of `expected`."""
    ours = {number.id: number for number in numbers}
    return [compare(one, ours.get(one.id)) for one in expected]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many numbers of one kind are within their tolerance."""

    within: int
    outside: int
    not_computable: int

    @property
    def compared(self) -> int:
        return self.within + self.outside


def counts(rows: Iterable[ComparedRow]) -> dict[Kind, Counts]:
    """Counts of the paper's numbers, of its inputs, and of the other simulator's. Settings are not counted."""
    judged: dict[Kind, list[bool | None]] = {"paper": [], "input": [], "simulator": []}
    for row in rows:
        if row.expected.kind in judged:
            judged[row.expected.kind].append(row.within)
    return {kind: Counts(*(some.count(verdict) for verdict in (True, False, None))) for kind, some in judged.items()}


def _judge(expected: Expected, number: Number) -> tuple[float | None, bool]:
    paper, ours = expected.paper, number.value
    if isinstance(paper, str) or isinstance(ours, str) or ours is None:
        return None, paper == ours
    tolerance = expected.tolerance
    if tolerance == SEEDS:
        end = number.high if paper > ours else number.low
        tolerance = abs((ours if end is None else end) - ours)
    if not isinstance(tolerance, (int, float)):
        raise ValueError(f"{expected.id}: tolerance is {tolerance!r}; give a number or 'seeds'.")
    return float(tolerance), abs(paper - ours) <= tolerance + ROUNDING


def _range(number: Number) -> str:
    if number.low is None or number.high is None:
        return ""
    return f"Range over seeds: {number.low:.3g} to {number.high:.3g}."
