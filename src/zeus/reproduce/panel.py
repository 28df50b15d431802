"""What a figure is: its data before they are drawn, and how to compute and draw them.

A picture shows only what its CSV file holds.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from zeus.reproduce.study import Case, Study

Cell = str | float | int | bool | None

THIRD = (5.2, 3.4)  # inches; three such pictures fill a row of the report, two HALF ones do
HALF = (7.9, 3.6)


@dataclass(frozen=True, slots=True)
class Panel:
    """The data of one picture.

    >>> panel = Panel("a", "A title", ("x", "y"), ((1, 2.0), (3, 4.0)))
    >>> panel.column("y"), panel.where(x=3).rows
    ([2.0, 4.0], ((3, 4.0),))
    """

    name: str  # file name without suffix
    title: str  # shown above the picture
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    size: tuple[float, float] = THIRD

    def column(self, name: str) -> list[Any]:
        index = self.columns.index(name)
        return [row[index] for row in self.rows]

    def where(self, **cells: Cell) -> Panel:
        """The panel with only the rows that have these cells."""
        wanted = [(self.columns.index(name), cell) for name, cell in cells.items()]
        return self.only(row for row in self.rows if all(row[index] == cell for index, cell in wanted))

    def only(self, lines: Iterable[tuple[Cell, ...]]) -> Panel:
        """The panel with these rows instead."""
        return replace(self, rows=tuple(lines))

    def values(self, name: str) -> list[Any]:
        """The distinct cells of a column, in order of appearance."""
        return list(dict.fromkeys(self.column(name)))

    def csv(self) -> str:
        """The rows as CSV text. An unknown value is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return text.getvalue()


@dataclass(frozen=True, slots=True)
class Number:
    """One number of ours, with its range over the seeds if it has one."""

    id: str
    value: float | str | None
    low: float | None = None
    high: float | None = None
    note: str = ""  # added to the note in expected.toml; if value is None, the reason


@dataclass(frozen=True, slots=True)
class Result:
    """What a figure computes."""

    panels: tuple[Panel, ...] = ()
    numbers: tuple[Number, ...] = ()
    remark: str = ""  # shown below the heading of the figure


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, table or section of the paper: how it is computed and drawn."""

    name: str  # the first part of the ids of its numbers
    title: str
    compute: Callable[[Study], Result]
    draw: Callable[[Axes, Panel], None]  # draws one panel
    cases: Callable[[Study], Iterable[Case]] = lambda study: ()  # the replays that it needs, so that they run ahead
    who: str = "Paper says"  # whose numbers ours are compared with


def rows(lines: Iterable[Iterable[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Convert rows for a panel: numpy scalars become plain numbers."""
    return tuple(tuple(cell.item() if isinstance(cell, np.generic) else cell for cell in line) for line in lines)
