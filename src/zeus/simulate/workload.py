"""A traced job on a traced GPU: what one epoch costs at each size and limit, and how many epochs past runs needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zeus.cost import CostModel
from zeus.errors import InputError
from zeus.profile import PowerProfile, Slice
from zeus.simulate.traces import PowerRow, TrainingRow, WorkloadKey, read_power, read_training


@dataclass(frozen=True, slots=True)
class Setting:
    """One workload of the paper's evaluation (Table 1)."""

    key: WorkloadKey
    target: float
    max_epochs: int
    default: int  # b0


SETTINGS: Final[dict[str, Setting]] = {
    "DeepSpeech2": Setting(WorkloadKey("librispeech", "deepspeech2", "adamw"), 40.0, 16, 192),
    "BERT-QA": Setting(WorkloadKey("squad", "bert_base_uncased", "adamw"), 84.0, 6, 32),
    "BERT-SA": Setting(WorkloadKey("sentiment140", "bert_base_uncased", "adamw"), 0.84, 10, 128),
    "ResNet-50": Setting(WorkloadKey("imagenet", "resnet50", "adadelta"), 0.65, 100, 256),
    "ShuffleNet-v2": Setting(WorkloadKey("cifar100", "shufflenetv2", "adadelta"), 0.6, 100, 1024),
    "NeuMF": Setting(WorkloadKey("movielens-1m", "ncf", "adam"), 0.41, 100, 1024),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A job that can be replayed."""

    name: str
    gpu: str
    max_watts: float  # the highest limit in the GPU's trace
    max_epochs: int
    default: int
    runs: Mapping[int, tuple[int | None, ...]]  # by size: the epoch in which each run reached the target; None: never
    profiles: Mapping[int, PowerProfile]  # by size: one epoch at each limit

    def __post_init__(self) -> None:
        if not self.runs or set(self.runs) != set(self.profiles) or self.default not in self.runs:
            raise InputError(
                f"workload {self.name!r} on {self.gpu}: runs of {sorted(self.runs)}, profiles of "
                f"{sorted(self.profiles)}, default {self.default}. All sizes need both, and the default is one of them."
            )

    @property
    def sizes(self) -> tuple[int, ...]:
        """B: the sizes that both traces hold."""
        return tuple(sorted(self.runs))

    @property
    def limits(self) -> tuple[float, ...]:
        """P: the limits in the power trace, highest first."""
        return tuple(sorted({one.limit_watts for p in self.profiles.values() for one in p.slices}, reverse=True))

    @property
    def horizon(self) -> int:
        """How many recurrences are replayed unless told otherwise: 2·|B|·|P|."""
        return 2 * len(self.sizes) * len(self.limits)

    def cost_model(self, eta: float) -> CostModel:
        """Cost on this GPU."""
        return CostModel(eta, self.max_watts)

    def best_epoch(self, size: int, eta: float) -> Slice:
        """One epoch at the best limit (Equation 7)."""
        profile = self.profiles[size]
        return profile.at(profile.best_limit(self.cost_model(eta)))

    def profiling_epoch(self, size: int) -> tuple[float, float]:
        """Joules and seconds of an epoch in which all limits are profiled: the mean over them."""
        slices = self.profiles[size].slices
        return sum(s.joules for s in slices) / len(slices), sum(s.seconds for s in slices) / len(slices)

    def epochs_charged(self, size: int) -> float:
        """Epochs of a run at this size, on average; one that misses the target runs to max_epochs."""
        runs = self.runs[size]
        return sum(self.max_epochs if n is None else min(n, self.max_epochs) for n in runs) / len(runs)

    def always_converges(self, size: int) -> bool:
        """Whether every traced run of this size reached the target within max_epochs."""
        return all(n is not None and n <= self.max_epochs for n in self.runs[size])


def from_rows(name: str, gpu: str, setting: Setting, power: list[PowerRow], training: list[TrainingRow]) -> Workload:
    """The workload of this setting, from both traces."""
    max_watts = max(row.limit_watts for row in power)
    epochs: dict[int, list[Slice]] = {}
    for row in power:
        if row.workload == setting.key:
            epoch = Slice(row.limit_watts, 1, row.seconds_per_epoch, row.average_watts * row.seconds_per_epoch)
            epochs.setdefault(row.batch_size, []).append(epoch)
    runs: dict[int, list[int | None]] = {}
    for run in training:
        if run.workload == setting.key and run.target_metric == setting.target:
            runs.setdefault(run.batch_size, []).append(run.target_epoch)
    sizes = sorted(set(epochs) & set(runs))
    if not sizes:
        raise InputError(f"{name} on {gpu}: no batch size is in both traces for {setting.key} at {setting.target:g}.")
    # b0 may not fit on a smaller GPU: then it is the largest that does.
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


def load(traces: Path | str, gpu: str) -> dict[str, Workload]:
    """All workloads of the evaluation on this GPU, from a folder with the published traces."""
    folder = Path(traces)
    power, training = read_power(folder / f"summary_power_{gpu}.csv"), read_training(folder / "summary_train.csv")
    return {name: from_rows(name, gpu, setting, power, training) for name, setting in SETTINGS.items()}
