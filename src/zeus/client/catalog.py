"""Opens the jobs of a store or a service."""

from __future__ import annotations

from zeus.client.api import JobsApi
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.errors import NotKnown
from zeus.job import JobSpec
from zeus.launcher_env import launcher_env
from zeus.store import MemoryStore, Store, open_store
from zeus.store.address import address_of, file_of, is_service, resolve


def open_jobs(where: str | Store | None = None) -> JobsApi:
    """Open the jobs of a store or a service, which may be unreachable.

    Args:
        where: A store, or the address of a store or service. Default: ZEUS_STORE, else the user's own file.

    Raises:
        InputError: The address is not valid. No connection is made until one is needed.
    """
    if where is not None and not isinstance(where, str):
        name = type(where).__name__
        if where.address is None:
            return LocalJobs(where, name)
        return ResilientJobs(Outbox(LocalJobs(where, where.address)))
    url = resolve(where)
    if is_service(url):
        return ResilientJobs(Outbox(HttpJobs(Connection(url))))
    return ResilientJobs(Outbox(LocalJobs(lambda: open_store(url), address_of(url))))


def find_job(job_id: str, store: str | Store | None = None) -> RecurringJob:
    """Find a registered job. If a launcher opened a trial of it for this script, that trial is bound by its id.

    Args:
        job_id: Id of the job.
        store: The store, or its address. Default: ZEUS_STORE, else the user's own file.

    Raises:
        InputError: The store cannot be opened, or holds no such job.
        StoreError: The store is unreachable, and this machine has never seen the job.
    """
    job, order = RecurringJob.find(open_jobs(store), job_id), launcher_env()
    if order.job_id == job_id and order.trial is not None and order.trial_id is not None:
        job.bind_trial_id(order.trial, order.trial_id)
    return job


def register_job(spec: JobSpec, store: str | Store | None = None, *, revise: bool = False) -> RecurringJob:
    """Register the job, or revise it if it exists. With `revise`, its target or what it counts may change."""
    return RecurringJob.register(open_jobs(store), spec, void=revise)


def copy_job(job_id: str, where: str | None = None) -> MemoryStore:
    """A store in memory with this job as it is now, or with none if it does not exist yet. Nothing is created."""
    copy, path = MemoryStore(), file_of(resolve(where))
    if path is not None and not path.exists():
        return copy
    jobs = open_jobs(where)
    try:
        copy.import_lines(jobs.export([job_id]))
    except NotKnown:
        pass
    finally:
        jobs.close()
    return copy
