"""Which recurring job, over which store, on which GPUs: the one place that knows where jobs are kept."""

from __future__ import annotations

import math

from zeus.distributed.crew import Alone, Crew
from zeus.env import orders
from zeus.errors import InputError
from zeus.job import Gpus, JobSpec
from zeus.jobs.api import RecurringJob
from zeus.jobs.catalog import open_jobs
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus
from zeus.store import Store


def find_job(job_id: str, store: str | Store | None = None) -> RecurringJob:
    """The job of this id, which somebody has registered. A trial of it that a launcher opened for this script is known.

    Args:
        job_id: Its id.
        store: Where it is kept, or the address of that; default: ZEUS_STORE, or the user's own file.

    Raises:
        InputError: The store cannot be opened or holds no such job.
        StoreError: It is away, and nothing is known of the job here.
    """
    job, told = open_jobs(store).find(job_id), orders()
    if told.job_id == job_id and told.trial is not None and told.trial_id is not None:
        job.hand(told.trial, told.trial_id)
    return job


def register_job(spec: JobSpec, store: str | Store | None = None, *, revise: bool = False) -> RecurringJob:
    """The job of this spec, made or revised; with `revise` also where trials for another target count no more."""
    return open_jobs(store).register(spec, void=revise)


def gpus_of(monitor: ZeusMonitor, crew: Crew | None = None) -> Gpus:
    """The GPUs of a training: those that the monitors of all its ranks count. Every rank must ask.

    Raises:
        InputError: MAXPOWER is not known, so that no cost would be either.

    >>> from zeus.device.virtual import VirtualMachine
    >>> gpus_of(ZeusMonitor(gpus=dict(enumerate(VirtualMachine.in_memory("v100", 2).gpus)))).label
    '2 x Tesla V100-PCIE-32GB'
    """
    count, watts = count_gpus(monitor, crew or Alone())
    if not (math.isfinite(watts) and watts > 0):
        raise InputError(
            f"the highest power limit of the {count} GPUs here is not known ({watts:g} W), and the cost of a "
            "training rests on it. See what `zeus env` says of them, or set ZEUS_GPU=virtual:v100 to try without."
        )
    name = next(gpu.spec.name for gpu in monitor.gpus.values())
    return Gpus(name, count, watts)
