"""Reads workloads (Table 1) from a TOML file: their rows in the traces, target, max_epochs and b0."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from zeus.errors import InputError, suggest
from zeus.job.checks import is_number, is_whole
from zeus.simulate.traces.rows import WorkloadKey


@dataclass(frozen=True, slots=True)
class Stand:
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
    virtual: Stand | None = None


def table_1() -> dict[str, WorkloadSpec]:
    """The six workloads of the paper's Table 1."""
    return dict(_table_1())


@cache
def _table_1() -> dict[str, WorkloadSpec]:
    name = "workloads.toml"
    return parse(files("zeus.simulate").joinpath(name).read_text(encoding="utf-8"), name)


def read(path: Path | str) -> dict[str, WorkloadSpec]:
    """Read the workloads of a file with the format of `workloads.toml`."""
    try:
        return parse(Path(path).read_text(encoding="utf-8"), str(path))
    except OSError as why:
        raise InputError(f"{path}: cannot be read ({why.strerror or why}).") from why
    except UnicodeDecodeError as why:
        raise InputError(f"{path}: not a text file in UTF-8 ({why}).") from why


def parse(text: str, where: str) -> dict[str, WorkloadSpec]:
    try:
        tables = tomllib.loads(text)
    except ValueError as why:  # also a number of more digits than Python reads
        raise InputError(f"{where}: not valid TOML ({why}).") from why
    if not tables:
        raise InputError(f"{where}: the file has no workload. Add a table for each, such as:{example()}")
    return {name: _setting(f"{where}, [{name}]", table) for name, table in tables.items()}


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


def _name(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _whole(value: object) -> bool:
    return is_whole(value, 1)


Check: TypeAlias = tuple[Callable[[Any], bool], str]
_NAME: Final[Check] = (_name, "a name")
_WHOLE: Final[Check] = (_whole, "a whole number of at least 1")
_SPREAD: Final[Check] = (lambda value: is_number(value, 0), "a number of at least 0")
_SIZES: Final[Check] = (
    lambda value: isinstance(value, list) and bool(value) and all(_whole(one) for one in value),
    "a list of whole numbers",
)
_WORKLOAD: Final[dict[str, Check]] = {
    "dataset": _NAME,
    "network": _NAME,
    "optimizer": _NAME,
    "target": (is_number, "a finite number"),
    "max_epochs": _WHOLE,
    "default": _WHOLE,
}
_VIRTUAL: Final[dict[str, Check]] = {
    "load": _NAME,
    "batch_sizes": _SIZES,
    "best": (lambda value: is_number(value) and value > 0, "a number above 0"),
    "epochs": (lambda value: is_number(value) and value >= 1, "a number of at least 1"),
    "below": _SPREAD,
    "above": _SPREAD,
    "noise": _SPREAD,
    "least": _WHOLE,
    "most": _WHOLE,
}


def _setting(where: str, table: Any) -> WorkloadSpec:
    if not isinstance(table, dict):
        raise InputError(f"{where}: {table!r} is not a table. A workload looks like this:{example()}")
    own = {field: value for field, value in table.items() if field != "virtual"}
    _check(where, own, _WORKLOAD)
    stand = table.get("virtual")
    if stand is not None:
        _check(f"{where}, virtual", stand, _VIRTUAL)
        stand = Stand(**{**stand, "batch_sizes": tuple(sorted(set(stand["batch_sizes"])))})
    key = WorkloadKey(table["dataset"], table["network"], table["optimizer"])
    return WorkloadSpec(key, float(table["target"]), table["max_epochs"], table["default"], stand)


def _check(where: str, table: Any, fields: Mapping[str, Check]) -> None:
    if not isinstance(table, dict):
        raise InputError(f"{where}: {table!r} is not a table.")
    for field in sorted(set(table) - set(fields)):
        raise InputError(f"{where}: unknown key {field!r}. {suggest(field, fields)}")
    for field, (sound, wanted) in fields.items():
        if field not in table:
            raise InputError(f"{where}: {field!r} is missing; give {wanted}.")
        if not sound(table[field]):
            raise InputError(f"{where}: {field} is {table[field]!r}; give {wanted}.")
