"""`zeus simulate --out FILE`: the results as a table (CSV or Parquet), or as a picture."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from zeus.errors import InputError
from zeus.lazy import optional, require

if TYPE_CHECKING:
    from zeus.simulate.results import ReplayResult

COLOURS: Final = ("BLUE", "ORANGE", "GREEN", "RED", "SKY", "PURPLE", "GREY", "BLACK")


def check_file(path: Path) -> None:
    """Raise InputError if a file of this name cannot be written, before anything is replayed."""
    if path.suffix not in WRITERS:
        raise InputError(f"--out {path}: give a name that ends in {', '.join(WRITERS)}.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--out {path}: there is no folder {path.parent}.")
    if path.suffix == ".png":
        require(f"--out {path}", "plots", "matplotlib", "matplotlib")


def write(path: Path, gpu: str, runs: Sequence[ReplayResult]) -> None:
    """Write the results as the name of the file says."""
    try:
        WRITERS[path.suffix](path, gpu, runs)
    except OSError as why:
        raise InputError(f"--out {path}: cannot be written ({why.strerror or why}).") from why


def _rows(gpu: str, runs: Sequence[ReplayResult]) -> list[dict[str, Any]]:
    """One row for each run. A choice is written as batch size @ power limit."""
    rows = []
    for run in runs:
        row = {"gpu": gpu, **run.to_json()}
        row["choices"] = " ".join(f"{size}@{watts}" for size, watts in row["choices"])
        rows.append(row)
    return rows


def _csv(path: Path, gpu: str, runs: Sequence[ReplayResult]) -> None:
    rows = _rows(gpu, runs)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _parquet(path: Path, gpu: str, runs: Sequence[ReplayResult]) -> None:
    try:
        pandas: Any = import_module("pandas")
    except ImportError as missing:
        raise InputError(f"--out {path} needs pandas and pyarrow, which are not installed.") from missing
    pandas.DataFrame(_rows(gpu, runs)).to_parquet(path)


def _png(path: Path, gpu: str, runs: Sequence[ReplayResult]) -> None:
    """The cost of all recurrences, relative to the best pair from the first one on. Whiskers: range over seeds."""
    from statistics import fmean

    with optional(f"--out {path}", "plots", "matplotlib"):
        from zeus.reproduce import drawing, style
        from zeus.reproduce.panel import HALF, Panel
    ratios: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.cumulative_regret is not None:
            best = run.cumulative_cost - run.cumulative_regret
            ratios.setdefault((run.workload, run.policy), []).append(run.cumulative_cost / best)
    if not ratios:
        raise InputError(f"--out {path}: the best pair of no workload is known, so there is nothing to draw.")
    lines = tuple((*key, fmean(some), min(some), max(some)) for key, some in ratios.items())
    panel = Panel("results", f"Cost on {gpu}, relative to the best choice from the start",
                  ("workload", "policy", "ratio", "low", "high"), lines, HALF)  # fmt: skip
    colours = {name: getattr(style, COLOURS[at % len(COLOURS)]) for at, name in enumerate(panel.values("policy"))}

    def draw(axes: Any, panel: Panel) -> None:
        drawing.bars(axes, panel, "workload", "policy", "ratio", colours, base=1.0, written=drawing.digits)
        axes.set_yscale("log")
        axes.set_ylabel("Cost / least cost")
        drawing.room_for_values(axes, 1.0, max(panel.column("high")))
        drawing.plain_ticks(axes.yaxis, drawing.ROUND)
        drawing.legend_below(axes)

    path.write_bytes(style.picture(panel, draw))


WRITERS: Final[dict[str, Callable[[Path, str, Sequence[ReplayResult]], None]]] = {
    ".csv": _csv,
    ".parquet": _parquet,
    ".png": _png,
}
