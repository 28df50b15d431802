"""The content of a job file, as values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from zeus.env import Mode, ProfilingPlan
from zeus.job import MAX_TRIES, JobSpec
from zeus.training.learning_rate import scale

PLACEHOLDERS = ("batch_size", "learning_rate", "seed", "epochs", "target_metric")


@dataclass(frozen=True, slots=True)
class LearningRate:
    """[learning_rate]: the learning rate at the default batch size, and how it grows with the size."""

    base: float
    rule: str = "sqrt"


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """[metrics]: where to find the epochs and metrics of an unmodified script."""

    regex: str = ""
    epoch_regex: str = ""
    file: str = ""
    epoch_line: str = ""  # whether an epoch line begins or ends its epoch; empty: found out from the other lines


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """A checked job file."""

    spec: JobSpec
    command: tuple[str, ...]  # with placeholders
    learning_rate: LearningRate | None = None
    metrics: MetricsSource | None = None  # None: the script uses ZeusDataLoader
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[int, ...] | None = None  # None: all that are visible
    mode: Mode | None = None  # None: taken from ZEUS_MODE
    profiling: ProfilingPlan | None = None  # None: taken from ZEUS_PROFILING
    max_tries: int = MAX_TRIES
    prices: Mapping[str, str] = field(default_factory=dict)  # [cost], as the variables that the script gets

    def rate(self, batch_size: int) -> float | None:
        if self.learning_rate is None:
            return None
        return scale(self.learning_rate.base, self.spec.default_batch_size, batch_size, self.learning_rate.rule)

    def arguments(self, batch_size: int, seed: int) -> list[str]:
        """The command of a trial, with its placeholders filled in."""
        values = {
            "batch_size": batch_size,
            "learning_rate": self.rate(batch_size),
            "seed": seed,
            "epochs": self.spec.max_epochs,
            "target_metric": self.spec.target_metric,
        }
        return [part.format(**values) for part in self.command]


def trial_seed(job_seed: int | None, number: int) -> int:
    """The seed of a trial: different for each trial, and the same each time it is computed.

    >>> trial_seed(0, 1) == trial_seed(0, 1) != trial_seed(0, 2)
    True
    """
    return int.from_bytes(hashlib.sha256(f"{job_seed}:{number}".encode()).digest()[:4], "big") >> 1
