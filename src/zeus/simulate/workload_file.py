"""Reads workloads (Table 1) from a TOML file: their rows in the traces, target, max_epochs and b0."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from zeus.errors import InputError, suggest
from zeus.job.checks import is_number, is_whole
from zeus.simulate.traces.rows import WorkloadKey
from zeus.toml_reader import TomlReader, shown


@dataclass(frozen=True, slots=True)
class VirtualCurve:
    """Replaces the traces of a workload: a load of the virtual GPUs, and Epochs(b) = epochs · 2^(bend·d²)."""

    load: str  # a name in `zeus.device.virtual.presets`
    batch_sizes: tuple[int, ...]
    best: float  # the size that needs the fewest epochs; d = log2(b / best)
    epochs: float  # at the size `best`
    below: float  # bend at sizes below `best`
    above: float  # bend at sizes above it
    noise: float  # standard deviation of log Epochs between runs
    least: int  # smaller sizes never reach the target
    most: int  # larger sizes never reach it either

    def mean_epochs(self, size: int) -> float:
        """Epochs(b), without noise."""
        d = math.log2(size / self.best)
        return float(self.epochs * 2 ** ((self.below if d < 0 else self.above) * d * d))


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload of an evaluation."""

    key: WorkloadKey
    target: float
    max_epochs: int
    default: int  # b0
    virtual: VirtualCurve | None = None


def table_1() -> dict[str, WorkloadSpec]:
    """The six workloads of the paper's Table 1."""
    return dict(_table_1())


@cache
def _table_1() -> dict[str, WorkloadSpec]:
    name = "workloads.toml"
    return parse(files("zeus.simulate").joinpath(name).read_text(encoding="utf-8"), name)


def read(path: Path | str) -> dict[str, WorkloadSpec]:
    """Read the workloads of a file with the format of `workloads.toml`."""
    text, data = read_toml(path)
    return _workloads(str(path), text, data)


def parse(text: str, where: str) -> dict[str, WorkloadSpec]:
    return _workloads(where, text, _loaded(text, where))


def read_toml(path: Path | str) -> tuple[str, dict[str, Any]]:
    """The text of a TOML file, and what it says."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as why:
        raise InputError(f"{path}: cannot be read ({why.strerror or why}).") from why
    except UnicodeDecodeError as why:
        raise InputError(f"{path}: not a text file in UTF-8 ({why}).") from why
    return text, _loaded(text, str(path))


def _loaded(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as why:  # also a number of more digits than Python reads
        raise InputError(f"{where}: not valid TOML ({why}).") from why


def find(name: str, known: Mapping[str, WorkloadSpec]) -> str:
    """Find a workload by name and return its exact name. Case does not matter."""
    for one in known:
        if one.lower() == name.lower():
            return one
    raise InputError(f"unknown workload {name!r}. {suggest(name, known)}")


def example(name: str = "NeuMF", setting: WorkloadSpec | None = None) -> str:
    shown = setting or _table_1()["NeuMF"]
    key = shown.key
    return (
        f'\n["{name}"]\ndataset = "{key.dataset}"\nnetwork = "{key.network}"\noptimizer = "{key.optimizer}"\n'
        f"target = {shown.target:g}\nmax_epochs = {shown.max_epochs}\ndefault = {shown.default}\n"
    )


class TableReader(TomlReader):
    """Checks the tables of a file, and says all that is wrong with them, each with its line."""

    def table(self, table: Any, fields: Mapping[str, Check], *path: str, needed: Iterable[str] = ()) -> None:
        """Check a table. `needed` are the keys that it must have."""
        if not isinstance(table, Mapping):
            self._blame(path, f"{'.'.join(path)} = {shown(table)}: give a table.")
            return
        self._check(table, fields, *path)
        for key in needed:
            if key not in table:
                where = f" in [{'.'.join(path)}]" if path else ""
                self._blame(path, f"{key} is missing{where}: give {fields[key][1]}.")

    def end(self) -> None:
        """Raise InputError if anything was wrong."""
        self._raise()


Check: TypeAlias = tuple[Callable[[Any], bool], str]
NAME: Final[Check] = (lambda value: isinstance(value, str) and bool(value), "a name")
ABOVE_0: Final[Check] = (lambda value: is_number(value) and value > 0, "a number above 0")
_WHOLE: Final[Check] = (lambda value: is_whole(value, 1), "a whole number of at least 1")
_SPREAD: Final[Check] = (lambda value: is_number(value, 0), "a number of at least 0")
_SIZES: Final[Check] = (
    lambda value: isinstance(value, list) and bool(value) and all(is_whole(one, 1) for one in value),
    "a list of whole numbers",
)
_WORKLOAD: Final[dict[str, Check]] = {
    "dataset": NAME,
    "network": NAME,
    "optimizer": NAME,
    "target": (is_number, "a finite number"),
    "max_epochs": _WHOLE,
    "default": _WHOLE,
}
_VIRTUAL: Final[dict[str, Check]] = {
    "load": NAME,
    "batch_sizes": _SIZES,
    "best": ABOVE_0,
    "epochs": (lambda value: is_number(value) and value >= 1, "a number of at least 1"),
    "below": _SPREAD,
    "above": _SPREAD,
    "noise": _SPREAD,
    "least": _WHOLE,
    "most": _WHOLE,
}


def _workloads(where: str, text: str, tables: Mapping[str, Any]) -> dict[str, WorkloadSpec]:
    if not tables:
        raise InputError(f"{where}: the file has no workload. Add a table for each, such as:{example()}")
    reader = TableReader(where, text, {})
    for name, table in tables.items():
        virtual = table.get("virtual") if isinstance(table, Mapping) else None
        own = {key: value for key, value in table.items() if key != "virtual"} if isinstance(table, Mapping) else table
        reader.table(own, _WORKLOAD, name, needed=_WORKLOAD)
        if virtual is not None:
            reader.table(virtual, _VIRTUAL, name, "virtual", needed=_VIRTUAL)
    reader.end()
    return {name: _spec(table) for name, table in tables.items()}


def _spec(table: Mapping[str, Any]) -> WorkloadSpec:
    curve = table.get("virtual")
    if curve is not None:
        curve = VirtualCurve(**{**curve, "batch_sizes": tuple(sorted(set(curve["batch_sizes"])))})
    key = WorkloadKey(table["dataset"], table["network"], table["optimizer"])
    return WorkloadSpec(key, float(table["target"]), table["max_epochs"], table["default"], curve)
