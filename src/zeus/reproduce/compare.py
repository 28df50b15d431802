"""Paper says, we get, within? One row a number; what has no number of ours says why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from zeus.reproduce.expected import Expected
from zeus.reproduce.panel import Number

ROUNDING = 1e-9  # so that a difference which is the tolerance itself is within it


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One comparison."""

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
        """The figure, table or section it belongs to."""
        return self.id.partition(".")[0]

    def to_json(self) -> dict[str, Any]:
        """As report.json holds it."""
        return asdict(self)


def compare(expected: Expected, number: Number | None) -> ComparedRow:
    """One number of the paper beside ours."""
    if expected.missing or number is None or number.value is None:
        why = expected.missing or (number.note if number else "") or "Not asked for in this run."
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
    """All rows, in the order of the paper's numbers."""
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
        raise ValueError(f"{expected.id}: tolerance {tolerance!r}; give a number or 'seeds'.")
    return float(tolerance), abs(paper - ours) <= tolerance + ROUNDING


def _range(number: Number) -> str:
    if number.low is None or number.high is None:
        return ""
    return f"Range over seeds: {number.low:.3g} to {number.high:.3g}."
