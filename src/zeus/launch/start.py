"""One start of a trial's command: the samples that each GPU gets at once, and the command's environment.

With `micro_batch_size = "auto"`, a trial is started again with fewer samples as long as it runs out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from zeus import settings
from zeus.cost import ZERO, Use
from zeus.device.find import SLURM
from zeus.device.gpu import Gpu
from zeus.device.virtual.machine import passed_on
from zeus.job import Ending, JobSpec, Outcome, Phase, Trial
from zeus.launch.job_file.values import JobFile
from zeus.launch.script import outcome_file
from zeus.launcher_env import VARIABLES, LauncherEnv
from zeus.settings import Mode, ProfilingPlan
from zeus.training.micro_batch import BatchSplit

# Not inherited from a launcher around this one.
OF_A_LAUNCHER = VARIABLES | {one.variable for one in (settings.nodes, settings.run_id, settings.slurm_comment)}


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a trial's command."""

    micro: int = 0  # most samples on each GPU at once; 0: any number
    before: Use = ZERO  # by earlier starts of the trial

    def split(self, file: JobFile, batch_size: int, gpus: int) -> BatchSplit | None:
        """How the batch is split. None: the command does not ask for that."""
        return file.split(batch_size, gpus, self.micro)

    def so_far(self, split: BatchSplit | None) -> Outcome:
        """What the trial has used before this start, for the store."""
        joules = self.before.joules if self.before.is_known else None
        return Outcome(
            ending=Ending.LOST, joules=joules, seconds=self.before.seconds, micro_batch_size=accumulated(split)
        )


def accumulated(split: BatchSplit | None) -> int | None:
    """The samples on each GPU at once if gradients are accumulated, else None."""
    return split.per_device if split is not None and split.accumulation_steps > 1 else None


def environ_of(
    file: JobFile,
    spec: JobSpec,
    trial: Trial,
    start: Start,
    *,
    seed: int,
    log: Path,
    mode: Mode,
    profiling: ProfilingPlan,
    gpus: Mapping[int, Gpu],
    count: int,
    profile_dir: str | None = None,
) -> dict[str, str]:
    """The launcher's own environment, the job file's [env] and ZEUS_*. Never log it: it may hold secrets.

    Args:
        file: The job file.
        spec: The job, as the store has it.
        trial: The trial that is started.
        start: Which start of it this is.
        seed: The trial's seed.
        log: Where its output goes.
        mode: The mode of the job's trials; baseline trials run with "off".
        profiling: How power limits are profiled.
        gpus: The GPUs of this machine that the job uses, by index.
        count: How many it uses on all nodes.
        profile_dir: Where the script leaves its power profile, under `zeus profile`.
    """
    size, before = trial.batch_size, start.before
    split = start.split(file, size, count)
    orders = LauncherEnv(
        job_id=spec.id,
        trial=trial.number,
        trial_id=trial.id or None,
        batch_size=size,
        learning_rate=file.rate(size),
        cost_limit=trial.decision.cost_limit,
        eta=trial.ask.eta,
        target_metric=spec.target_metric,
        higher_is_better=spec.higher_is_better_metric,
        max_epochs=spec.max_epochs,
        seed=seed,
        outcome_file=str(outcome_file(log)),
        profile_dir=profile_dir,
        include=trial.ask.gpus.include,
        per_device_batch_size=None if split is None else split.per_device,
        accumulation_steps=None if split is None else split.accumulation_steps,
        spent_joules=before.joules if before.seconds and before.is_known else None,
        spent_seconds=before.seconds or None,
    )
    own = Mode.OFF if trial.decision.phase is Phase.BASELINE else mode
    chosen = {"ZEUS_MODE": str(own), "ZEUS_PROFILING": str(profiling)}
    visible = mask(file.gpus, gpus, settings.HERE)
    inherited = settings.inherited(OF_A_LAUNCHER) | passed_on()
    return {**inherited, **file.env, **file.prices, **chosen, **visible, **orders.variables()}


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
