"""One start of a trial's command: the samples that each GPU gets at once, and the GPUs that it sees.

With `micro_batch_size = "auto"`, a trial is started again with fewer samples as long as it runs out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeus import settings
from zeus.cost import ZERO, Use
from zeus.device.find import SLURM
from zeus.device.gpu import Gpu
from zeus.job import Ending, Outcome, Trial
from zeus.launcher_env import VARIABLES
from zeus.training.micro_batch import BatchSplit

# Not inherited from a launcher around this one.
OF_A_LAUNCHER = VARIABLES | {one.variable for one in (settings.nodes, settings.run_id, settings.slurm_comment)}


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a trial's command."""

    trial: Trial
    seed: int
    micro: int = 0  # most samples on each GPU at once; 0: any number
    before: Use = ZERO  # by earlier starts of the trial, and by profiling before the first run

    def so_far(self, split: BatchSplit | None) -> Outcome:
        """What the trial has used before this start, for the store."""
        joules = self.before.joules if self.before.is_known else None
        return Outcome(
            ending=Ending.LOST,
            joules=joules,
            seconds=self.before.seconds,
            micro_batch_size=accumulated(split),
            earlier_joules=joules,
            earlier_seconds=self.before.seconds,
        )


def accumulated(split: BatchSplit | None) -> int | None:
    """The samples on each GPU at once if gradients are accumulated, else None."""
    return split.per_device if split is not None and split.accumulation_steps > 1 else None


def mask(indices: Sequence[int] | None, gpus: Mapping[int, Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """Environment that hides all other GPUs from the command. Indices count the GPUs that the launcher itself sees.

    >>> mask([1], {}, {"CUDA_VISIBLE_DEVICES": "4,5"})
    {'CUDA_VISIBLE_DEVICES': '5'}
    """
    if indices is None:
        return {}
    amd = any(gpu.spec.vendor == "amd" for gpu in gpus.values())
    name = "HIP_VISIBLE_DEVICES" if amd and not environ.get("CUDA_VISIBLE_DEVICES") else "CUDA_VISIBLE_DEVICES"
    if seen := environ.get(name, ""):
        entries = [entry.strip() for entry in seen.split(",")]
        return {name: ",".join(entries[index] for index in indices)}
    if any(environ.get(slurm, "").strip() for slurm in SLURM):  # indices within the SLURM share mean nothing to CUDA
        return {name: ",".join(gpus[index].spec.uuid for index in indices)}
    return {name: ",".join(map(str, indices))}
