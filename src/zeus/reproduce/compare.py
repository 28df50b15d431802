"""Compares each number of the paper with ours. A row without a number of ours says why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from zeus.reproduce.expected import SEEDS, Basis, Expected, Kind
from zeus.reproduce.panel import Number

ROUNDING = 1e-9  # a difference equal to the tolerance must count as within it


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One number of the paper compared with ours: a row of the report."""

    id: str
    quantity: str
    paper: float | str
    ours: float | str | None
    unit: str
    tolerance: float | None
    within: bool | None  # None: not computed, or not compared
    where: str
    note: str
    kind: Kind  # a number of the paper, one of the other simulator, or a setting that the paper leaves open
    tolerance_basis: Basis | None  # where the tolerance comes from; None: no tolerance

    @property
    def figure(self) -> str:
        """The figure, table or section of this number."""
        return self.id.partition(".")[0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(expected: Expected, number: Number | None) -> ComparedRow:
    """Compare one number of the paper with ours."""
    if expected.missing or number is None or number.value is None:
        why = expected.missing or (number.note if number else "") or "Not part of this run."
        return _row(expected, None, None, None, why)
    tolerance, within = (None, None) if expected.kind == "setting" else _judge(expected, number)
    note = " ".join(part for part in (expected.note, number.note, _range(number)) if part)
    return _row(expected, number.value, tolerance, within, note)


@dataclass(frozen=True, slots=True)
class Counts:
    """How many numbers of one kind are within their tolerance."""

    within: int
    outside: int
    not_computable: int


def counts(rows: Iterable[ComparedRow]) -> dict[Kind, Counts]:
    """The counts of the paper's own numbers, and of those of the other simulator. Settings are not counted."""
    judged: dict[Kind, list[bool | None]] = {"paper": [], "simulator": []}
    for row in rows:
        if row.kind in judged:
            judged[row.kind].append(row.within)
    return {kind: Counts(*(some.count(verdict) for verdict in (True, False, None))) for kind, some in judged.items()}


def table(expected: Iterable[Expected], numbers: Iterable[Number]) -> list[ComparedRow]:
    """Compare all numbers, in the order of `expected`."""
    ours = {number.id: number for number in numbers}
    return [compare(one, ours.get(one.id)) for one in expected]


def _row(
    expected: Expected, ours: float | str | None, tolerance: float | None, within: bool | None, note: str
) -> ComparedRow:
    return ComparedRow(
        expected.id,
        expected.quantity,
        expected.paper,
        ours,
        expected.unit,
        tolerance,
        within,
        expected.where,
        note,
        expected.kind,
        None if tolerance is None else expected.tolerance_basis,
    )


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
