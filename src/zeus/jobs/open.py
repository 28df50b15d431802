"""Open a recurring job: find it or register it in its store, and describe the GPUs it runs on."""

from __future__ import annotations

import math

from zeus.cost import GPU_ONLY, Include
from zeus.device.find import no_gpu
from zeus.distributed.group import RankGroup, SingleRank
from zeus.errors import InputError
from zeus.job import Gpus, JobSpec
from zeus.jobs.api import RecurringJob
from zeus.jobs.catalog import open_jobs
from zeus.launcher_env import launcher_env
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus, need_included
from zeus.store import Store


def find_job(job_id: str, store: str | Store | None = None) -> RecurringJob:
    """Find a registered job. If a launcher opened a trial of it for this script, that trial is bound by its id.

    Args:
        job_id: Id of the job.
        store: The store, or its address. Default: ZEUS_STORE, else the user's own file.

    Raises:
        InputError: The store cannot be opened, or holds no such job.
        StoreError: The store is unreachable, and this machine has never seen the job.
    """
    job, order = open_jobs(store).find(job_id), launcher_env()
    if order.job_id == job_id and order.trial is not None and order.trial_id is not None:
        job.hand(order.trial, order.trial_id)
    return job


def register_job(spec: JobSpec, store: str | Store | None = None, *, revise: bool = False) -> RecurringJob:
    """Register the job, or revise it if it exists. With `revise`, its target or what it counts may change."""
    return open_jobs(store).register(spec, void=revise)


def gpus_of(monitor: ZeusMonitor, group: RankGroup | None = None, include: Include = GPU_ONLY) -> Gpus:
    """The GPUs of a training, summed over the monitors of all ranks. Every rank must call this.

    Args:
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together.
        include: Whose energy the costs count.

    Raises:
        InputError: MAXPOWER is not known, or the energy of a CPU that counts cannot be measured.

    >>> from zeus.device.virtual import VirtualMachine
    >>> gpus_of(ZeusMonitor(gpus=dict(enumerate(VirtualMachine.in_memory("v100", 2).gpus)))).label
    '2 x Tesla V100-PCIE-32GB'
    """
    need_included(monitor, group or SingleRank(), include)
    return gpus_like(monitor, *count_gpus(monitor, group or SingleRank()), include)


def gpus_like(monitor: ZeusMonitor, count: int, watts: float, include: Include = GPU_ONLY) -> Gpus:
    """So many GPUs of the model that this monitor measures, with this sum of highest limits. Raises like `gpus_of`."""
    if not count:
        raise InputError(f"{no_gpu()} Costs depend on the highest power limit of the GPUs.")
    if not (math.isfinite(watts) and watts > 0):
        raise InputError(
            f"the highest power limit of the GPUs here ({count} found) is not known: {watts:g} W. Costs depend on it. "
            "`zeus env` shows what each GPU can report."
        )
    name = next(gpu.spec.name for gpu in monitor.gpus.values())
    return Gpus(name, count, watts, include)
