"""The content of a job file, as values."""

from __future__ import annotations

import hashlib
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from zeus.errors import InputError
from zeus.job import MAX_TRIES, JobSpec
from zeus.job.checks import is_number
from zeus.settings import Mode, ProfilingPlan
from zeus.training.learning_rate import RULES, scale
from zeus.training.micro_batch import BatchSplit, split

SPLIT_PLACEHOLDERS = ("per_device_batch_size", "accumulation_steps")
PLACEHOLDERS = (
    "batch_size",
    "learning_rate",
    "seed",
    "epochs",
    "target_metric",
    *SPLIT_PLACEHOLDERS,
    "world_size",
    "python",
)
AUTO = "auto"  # micro_batch_size: as many samples as fit in memory


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_above(value: Any) -> bool:
    return is_number(value) and value > 0


def _is_rule(value: Any) -> bool:
    return isinstance(value, str) and value in RULES


def _is_epoch_line(value: Any) -> bool:
    return value in ("", "begin", "end")


TEXT = (_is_text, 'a text in "quotes"')


@dataclass(frozen=True, slots=True)
class LearningRate:
    """[learning_rate]: the learning rate at the default batch size, and how it grows with the size."""

    base: Annotated[float, (_is_above, "a number above 0")]
    rule: Annotated[str, (_is_rule, " or ".join(f'"{rule}"' for rule in RULES))] = "sqrt"


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """[metrics]: where to find the epochs and metrics of an unmodified script."""

    regex: Annotated[str, TEXT] = ""
    epoch_regex: Annotated[str, TEXT] = ""
    file: Annotated[str, TEXT] = ""
    samples: Annotated[str, TEXT] = ""  # expression that finds the samples of an epoch, so that growing data are seen
    # Whether an epoch line begins or ends its epoch; empty: found out from the other lines.
    epoch_line: Annotated[str, (_is_epoch_line, '"begin" or "end", or leave it out')] = ""


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
    micro_batch_size: int | str = 0  # most samples on each GPU at once; 0: any number; AUTO: what fits in memory
    places: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # [slurm], [ray], [kubernetes]

    def rate(self, batch_size: int) -> float | None:
        if self.learning_rate is None:
            return None
        return scale(self.learning_rate.base, self.spec.default_batch_size, batch_size, self.learning_rate.rule)

    @property
    def is_split(self) -> bool:
        """Whether the command must know how its batches are split. Then the GPUs must share each size evenly."""
        return self.micro_batch_size != 0 or any(uses(self.command, name) for name in SPLIT_PLACEHOLDERS)

    def split(self, batch_size: int, world_size: int, micro: int) -> BatchSplit | None:
        """How this size is trained on so many GPUs; None if they cannot share it and the command need not know."""
        if not self.is_split and batch_size % world_size:
            return None
        return split(batch_size, world_size, micro)

    def check_nodes(self, nodes: int) -> None:
        """Raise InputError if the job cannot be measured on so many nodes: `zeus run` sees only the GPUs of its own."""
        if nodes == 1:
            return
        if self.metrics is not None:
            raise InputError(
                f"[metrics] on {nodes} nodes: `zeus run` would measure only the GPUs of the first. Use ZeusDataLoader "
                "or a callback in the script, which measure on every node, or train on one node."
            )
        if self.micro_batch_size == AUTO:
            raise InputError(
                f'micro_batch_size = "auto" on {nodes} nodes: `zeus run` would measure the starts that run out of '
                "memory only on the first. Give a number, or train on one node."
            )

    def arguments(self, batch_size: int, seed: int, world_size: int = 1, micro: int = 0) -> list[str]:
        """The command of a trial, with its placeholders filled in.

        Args:
            batch_size: The global batch size.
            seed: The seed of the trial.
            world_size: The GPUs of the job.
            micro: Most samples on each GPU at once, or 0 for any number.
        """
        parts = self.split(batch_size, world_size, micro)
        values = {
            "per_device_batch_size": parts and parts.per_device,
            "accumulation_steps": parts and parts.accumulation_steps,
            "world_size": world_size,
            "python": sys.executable,
            "batch_size": batch_size,
            "learning_rate": self.rate(batch_size),
            "seed": seed,
            "epochs": self.spec.max_epochs,
            "target_metric": self.spec.target_metric,
        }
        return [part.format(**values) for part in self.command]


def uses(command: Sequence[str], name: str) -> bool:
    return any(found == name for part in command for _, found, _, _ in string.Formatter().parse(part))


def trial_seed(job_seed: int | None, number: int) -> int:
    """The seed of a trial: different for each trial, and the same each time it is computed.

    >>> trial_seed(0, 1) == trial_seed(0, 1) != trial_seed(0, 2)
    True
    """
    return int.from_bytes(hashlib.sha256(f"{job_seed}:{number}".encode()).digest()[:4], "big") >> 1
