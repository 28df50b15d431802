"""What a figure is before it is drawn: rows of numbers. A picture shows only what the CSV beside it holds."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Cell = str | float | int | bool | None


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture's data.

    >>> panel = Panel("a", "A title", ("x", "y"), ((1, 2.0), (3, 4.0)))
    >>> panel.column("y"), panel.where(x=3).rows
    ([2.0, 4.0], ((3, 4.0),))
    """

    name: str  # stem of the files
    title: str  # what is seen
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    size: tuple[float, float] = (5.2, 3.4)  # inches

    def column(self, name: str) -> list[Any]:
        """All cells of a column."""
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def where(self, **cells: Cell) -> Panel:
        """Only the rows with these cells."""
        wanted = [(self.columns.index(name), cell) for name, cell in cells.items()]
        return self.only(row for row in self.rows if all(row[index] == cell for index, cell in wanted))

    def only(self, lines: Iterable[tuple[Cell, ...]]) -> Panel:
        """The same columns with these rows."""
        return replace(self, rows=tuple(lines))

    def values(self, name: str) -> list[Any]:
        """The different cells of a column, in order of appearance."""
        return list(dict.fromkeys(self.column(name)))

    def csv(self) -> str:
        """The rows as a CSV text; unknown is empty."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True, slots=True)
class Number:
    """One number of ours, and where it has one its range over the seeds."""

    id: str
    value: float | str | None
    low: float | None = None
    high: float | None = None
    note: str = ""  # added to what expected.toml remarks; for None: why it is not known


@dataclass(frozen=True, slots=True)
class Result:
    """What a figure's module computes."""

    panels: tuple[Panel, ...] = ()
    numbers: tuple[Number, ...] = ()
    remark: str = ""  # said under the figure's heading


def rows(lines: Iterable[Iterable[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Rows as a panel holds them: plain numbers, none of numpy's."""
    return tuple(tuple(cell.item() if isinstance(cell, np.generic) else cell for cell in line) for line in lines)
