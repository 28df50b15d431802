"""The six workloads of the paper's evaluation (Table 1), from its published traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zeus.errors import InputError
from zeus.profile import PowerProfile, Slice
from zeus.simulate.traces import PowerRow, TrainingRow, WorkloadKey, read_power, read_training
from zeus.simulate.workload import Workload


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
