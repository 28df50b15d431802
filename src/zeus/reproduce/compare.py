"""Compares each number of the paper with ours. A row without a number of ours says why there is none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from zeus.reproduce.expected import Expected
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
    within: bool | None  # None: not computed
    where: str
    note: str

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
        return ComparedRow(
            expected.id, expected.quantity, expected.paper, None, expected.unit, None, None, expected.where, why
        )
    tolerance, within = _judge(expected, number)
    note = " ".join(part for part in (expected.note, number.note, _range(number)) if part)
    return ComparedRow(
        expected.id,
        expected.quantity,
        expected.paper,
        number.value,
        expected.unit,
        tolerance,
        within,
        expected.where,
        note,
    )


def table(expected: Iterable[Expected], numbers: Iterable[Number]) -> list[ComparedRow]:
    """Compare all numbers, in the order of `expected`."""
    ours = {number.id: number for number in numbers}
    return [compare(one, ours.get(one.id)) for one in expected]


def _judge(expected: Expected, number: Number) -> tuple[float | None, bool]:
    paper, ours = expected.paper, number.value
    if isinstance(paper, str) or isinstance(ours, str) or ours is None:
        return None, paper == ours
    tolerance = expected.tolerance
    if tolerance == "seeds":
        end = number.high if paper > ours else number.low
        tolerance = abs((ours if end is None else end) - ours)
    if not isinstance(tolerance, (int, float)):
        raise ValueError(f"{expected.id}: tolerance is {tolerance!r}; give a number or 'seeds'.")
    return float(tolerance), abs(paper - ours) <= tolerance + ROUNDING


def _range(number: Number) -> str:
    if number.low is None or number.high is None:
        return ""
    return f"Range over seeds: {number.low:.3g} to {number.high:.3g}."
