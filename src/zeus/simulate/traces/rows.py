"""Reads the paper's published traces: power and epoch time by limit, and epochs to target by run (§6.1).

A replay is only as good as its input, so a file with any fault is refused. The first fault raises `InputError` with
the file, the line and the fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from zeus import settings
from zeus.errors import InputError
from zeus.simulate.traces.csv_tables import Cells, Header, read_table

POWER_COLUMNS: Final = (
    "dataset",
    "network",
    "batch_size",
    "optimizer",
    "power_limit",
    "time_per_epoch",
    "average_power",
)
TRAINING_COLUMNS: Final = (
    "dataset",
    "network",
    "batch_size",
    "optimizer",
    "learning_rate",
    "run",
    "target_metric",
    "target_epoch",
)

Row = TypeVar("Row")


class WorkloadKey(NamedTuple):
    """Identifies a workload in the traces. The same network with another data set or optimizer is another workload."""

    dataset: str
    network: str
    optimizer: str


def published(root: Path | None = None) -> Path:
    """The folder of the paper's published traces: in ZEUS_DATA, or beside `root` (default: the current folder)."""
    return (settings.data() or (root or Path()) / ".." / "shared" / "data") / "nsdi23_traces"


@dataclass(frozen=True, slots=True)
class PowerRow:
    """One training epoch of a workload on one GPU model, at one batch size and one power limit."""

    dataset: str
    network: str
    batch_size: int
    optimizer: str
    limit_watts: float
    seconds_per_epoch: float
    average_watts: float

    @property
    def workload(self) -> WorkloadKey:
        return WorkloadKey(self.dataset, self.network, self.optimizer)


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One training run, and the epoch (from 1) in which it first met one target; None if it never did."""

    dataset: str
    network: str
    batch_size: int
    optimizer: str
    learning_rate: float
    run: int
    target_metric: float
    target_epoch: int | None

    @property
    def workload(self) -> WorkloadKey:
        return WorkloadKey(self.dataset, self.network, self.optimizer)


def read_power(path: Path | str) -> list[PowerRow]:
    """Read a `summary_power_GPU.csv`, in file order."""

    def row(cell: Cells) -> PowerRow:
        return PowerRow(
            dataset=cell.text("dataset"),
            network=cell.text("network"),
            batch_size=cell.whole("batch_size"),
            optimizer=cell.text("optimizer"),
            limit_watts=cell.positive("power_limit"),
            seconds_per_epoch=cell.positive("time_per_epoch"),
            average_watts=cell.positive("average_power"),
        )

    return _read(Path(path), POWER_COLUMNS, row, lambda r: (*r.workload, r.batch_size, r.limit_watts))


def read_training(path: Path | str) -> list[TrainingRow]:
    """Read a `summary_train.csv`, in file order."""

    def row(cell: Cells) -> TrainingRow:
        return TrainingRow(
            dataset=cell.text("dataset"),
            network=cell.text("network"),
            batch_size=cell.whole("batch_size"),
            optimizer=cell.text("optimizer"),
            learning_rate=cell.positive("learning_rate"),
            run=cell.whole("run"),
            target_metric=cell.not_negative("target_metric"),
            target_epoch=None
            if cell["target_epoch"] == "nan"
            else cell.whole("target_epoch", ", or nan if the target was never reached"),
        )

    def key(r: TrainingRow) -> tuple[object, ...]:
        return (*r.workload, r.batch_size, r.learning_rate, r.run, r.target_metric)

    return _read(Path(path), TRAINING_COLUMNS, row, key)


def _read(
    path: Path, columns: tuple[str, ...], parse: Callable[[Cells], Row], key: Callable[[Row], tuple[object, ...]]
) -> list[Row]:
    rows: list[Row] = []
    first_seen: dict[tuple[object, ...], int] = {}
    for cells in read_table(path, columns, Header.NEEDED):
        row = parse(cells)
        if (earlier := first_seen.setdefault(key(row), cells.line)) != cells.line:
            raise cells.fault(f"same key as line {earlier}: {', '.join(str(part) for part in key(row))}")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}, line 1: the file has no rows. It needs a header and at least one row.")
    return rows
