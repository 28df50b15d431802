"""Loads workloads from a folder of traces in the format that the paper published (§6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from zeus.errors import InputError
from zeus.profile import LimitSlice, PowerProfile
from zeus.simulate.traces.rows import PowerRow, TrainingRow, WorkloadKey, read_power, read_training
from zeus.simulate.workload import Workload
from zeus.simulate.workload_file import WorkloadSpec, example, find, read, table_1

TRAINING = "summary_train.csv"
WORKLOADS = "workloads.toml"  # may lie beside the traces, and then describes their workloads
SMALLEST: Final = 8  # the paper sweeps batch sizes from 8 up (§2.2); some traces also hold 2 and 4


@dataclass(frozen=True)
class TraceFolder:
    """A folder of traces. Each of its files is read once, when it is first needed."""

    path: Path
    settings: Mapping[str, WorkloadSpec] | None = None
    _power: dict[Path, list[PowerRow]] = field(default_factory=dict)

    @cached_property
    def training(self) -> list[TrainingRow]:
        return read_training(self.path / TRAINING)

    @cached_property
    def known(self) -> Mapping[str, WorkloadSpec]:
        """The workloads: as given, else those of the folder's own workloads.toml, else Table 1."""
        beside = self.path / WORKLOADS
        return self.settings or (read(beside) if beside.exists() else table_1())

    def load(self, gpu: str, names: Iterable[str] | None = None, smallest: int = SMALLEST) -> dict[str, Workload]:
        """As the function `load`."""
        file = _power_file(self.path, gpu)
        if file not in self._power:
            self._power[file] = read_power(file)
        power, training, known = self._power[file], self.training, self.known
        here = _keys(power) & _keys(training)
        if names is None:
            names = [name for name, setting in known.items() if setting.key in here]
            if not names:
                looked = f"{file.name} and {TRAINING}"
                raise InputError(f"{self.path}: none of {', '.join(known)} is in both {looked}.{_hint(here)}")
        try:
            found = [find(name, known) for name in names]
        except InputError as wrong:
            raise InputError(f"{wrong}{_hint(here - {setting.key for setting in known.values()})}") from None
        on = file.stem.removeprefix("summary_power_")
        return {name: from_rows(name, on, known[name], power, training, smallest) for name in found}


def load(
    traces: Path | str,
    gpu: str,
    names: Iterable[str] | None = None,
    settings: Mapping[str, WorkloadSpec] | None = None,
    smallest: int = SMALLEST,
) -> dict[str, Workload]:
    """The named workloads on this GPU, with the batch sizes from `smallest` up.

    Without names, all workloads that are in the settings and in the traces. The settings are, by default, those of the
    folder's own workloads.toml, or Table 1 if it has none.

    Raises:
        InputError: The folder has no trace of this GPU, lacks a named workload, or has only smaller sizes of it.
    """
    return TraceFolder(Path(traces), settings).load(gpu, names, smallest)


def from_rows(
    name: str,
    gpu: str,
    setting: WorkloadSpec,
    power: list[PowerRow],
    training: list[TrainingRow],
    smallest: int = SMALLEST,
) -> Workload:
    """Build the workload of this setting from the rows of both traces."""
    max_watts = max(row.limit_watts for row in power)
    epochs: dict[int, list[LimitSlice]] = {}
    for row in power:
        if row.workload == setting.key:
            epoch = LimitSlice(row.limit_watts, 1, row.seconds_per_epoch, row.average_watts * row.seconds_per_epoch)
            epochs.setdefault(row.batch_size, []).append(epoch)
    runs: dict[int, list[int | None]] = {}
    for run in training:
        if run.workload == setting.key and run.target_metric == setting.target:
            runs.setdefault(run.batch_size, []).append(run.target_epoch)
    traced = sorted(set(epochs) & set(runs))
    if not traced:
        targets = sorted({row.target_metric for row in training if row.workload == setting.key})
        raise InputError(
            f"{name} on {gpu}: no batch size is in both traces for {'/'.join(setting.key)} at target "
            f"{setting.target:g}; the power trace has sizes {sorted(epochs)}, the other has "
            f"targets {targets}. Correct the target in the workloads file."
        )
    sizes = [size for size in traced if size >= smallest]
    if not sizes or setting.default < smallest:
        what = (
            f"the default batch size {setting.default} is" if sizes else f"all batch sizes of the traces {traced} are"
        )
        least = min(traced[0], setting.default)
        raise InputError(
            f"{name} on {gpu}: {what} below the smallest batch size in use, {smallest}. "
            f"Give --smallest-batch-size {least} to use sizes from {least} up."
        )
    # b0 may not fit on a smaller GPU. Then the largest size that fits is the default.
    default = max((size for size in sizes if size <= setting.default), default=sizes[0])
    return Workload(
        name,
        gpu,
        max_watts,
        setting.max_epochs,
        default,
        {size: tuple(runs[size]) for size in sizes},
        {size: PowerProfile.of(epochs[size]) for size in sizes},
    )


def gpus(traces: Path | str) -> list[str]:
    """The GPUs whose power trace is in this folder."""
    return sorted(path.stem.removeprefix("summary_power_") for path in Path(traces).glob("summary_power_*.csv"))


def _power_file(folder: Path, gpu: str) -> Path:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. It must hold {TRAINING} and a summary_power_GPU.csv for each GPU.")
    for name in gpus(folder):
        if name.lower() == gpu.lower():
            return folder / f"summary_power_{name}.csv"
    available = ", ".join(gpus(folder)) or "none"
    raise InputError(f"{folder}: no summary_power_{gpu}.csv for GPU {gpu!r}. GPUs with a trace: {available}.")


def _keys(rows: Iterable[PowerRow | TrainingRow]) -> set[WorkloadKey]:
    return {row.workload for row in rows}


def _hint(keys: set[WorkloadKey]) -> str:
    """How to add workloads that are in the traces but not in the settings."""
    if not keys:
        return ""
    key = min(keys)
    shown = example("/".join(key), WorkloadSpec(key, 0.5, 100, 32))
    held = ", ".join("/".join(one) for one in sorted(keys))
    return f" The traces also hold {held}. To use one, give --workloads FILE with its target, max_epochs and b0:{shown}"
