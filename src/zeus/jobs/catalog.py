"""All jobs of a store or a service, as `zeus jobs` and `zeus run` use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, TypeVar

from zeus.errors import NotKnown
from zeus.job import JobSpec
from zeus.jobs.api import RecurringJob
from zeus.jobs.local import LocalJob
from zeus.jobs.remote.client import Service, of_job
from zeus.jobs.remote.job import ResilientJob
from zeus.jobs.remote.outbox import Outbox
from zeus.jobs.remote.retry import ONCE, Patience, look
from zeus.jobs.remote.service_backend import ServiceBackend
from zeus.jobs.remote.store_backend import StoreBackend
from zeus.jobs.trial_log import end_of, find_log
from zeus.policy.registry import find_policy
from zeus.store import Store, open_store
from zeus.store.address import address_of, file_of, is_service, resolve, shown
from zeus.store.memory import MemoryStore
from zeus.tariff.settings import prices

Json = dict[str, Any]
T = TypeVar("T")
PAGE = 500


def open_jobs(where: str | Store | None = None) -> Jobs:
    """Open the jobs of a store or a service.

    Args:
        where: A store, or the address of a store or service. Default: ZEUS_STORE, else the user's own file.

    Raises:
        InputError: The address is not valid. No connection is made until one is needed.
    """
    if where is not None and not isinstance(where, str):
        store, name = where, type(where).__name__
        if store.address is None:
            return LocalJobs(store, name)
        return StoredJobs(StoreBackend(lambda: store, store.address or name), name)
    url = resolve(where)
    if is_service(url):
        return RemoteJobs(Service(url))
    return StoredJobs(StoreBackend(lambda: open_store(url), address_of(url)), shown(url))


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


class Jobs(Protocol):
    """All jobs of one store or service. Methods raise the errors of `Store`."""

    address: str  # for people; holds no secret

    def find(self, job_id: str) -> RecurringJob:
        """A registered job."""

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """Register the job, or revise it if it exists. `void` is as in `Store.register`."""

    def briefs(self) -> list[Json]:
        """A short summary of each job, sorted by id."""

    def full(self, job_id: str) -> Json:
        """Everything about one job."""

    def log_end(self, job_id: str, number: int) -> str:
        """The end of a trial's log, if it is on this machine or on that of the service; else NotKnown is raised."""

    def export(self, job_ids: Iterable[str]) -> list[str]:
        """All facts of these jobs, or of all jobs if none is named, as lines of JSON."""

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """Import what `export` returned, all or nothing. Returns the job ids."""

    def forget(self, job_id: str) -> None:
        """Remove a job with all its facts."""

    def pulse(self) -> dict[str, str]:
        """For each job, a text that changes whenever its facts or its spec change."""

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        """Remove a job's facts but keep it registered. If `pulse` is given, only if the job still has that pulse."""

    def pardon(self, job_id: str, batch_size: int) -> None:
        """Allow a batch size that crashed to be offered again."""

    def close(self) -> None:
        """Close all connections."""


class LocalJobs:
    """The jobs of a store that lives in this process."""

    def __init__(self, store: Store, address: str) -> None:
        self._here = store
        self.address = address

    @property
    def _store(self) -> Store:
        return self._here

    def find(self, job_id: str) -> RecurringJob:
        return LocalJob(self._store, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        return LocalJob.register(self._store, spec, void=void)

    def briefs(self) -> list[Json]:
        from zeus.jobs.report import brief_of, each_brief

        store, rates = self._store, prices()
        make = partial(brief_of, store, prices=rates)
        return [brief for _, brief in each_brief(store, dict(sorted(store.pulse().items())), make, rates)]

    def full(self, job_id: str) -> Json:
        from zeus.jobs.report import full, report

        return full(report(self._store, job_id), prices())

    def log_end(self, job_id: str, number: int) -> str:
        store = self._store
        return end_of(find_log(job_id, store.job(job_id).generation, store.trial(job_id, number).trial))

    def export(self, job_ids: Iterable[str]) -> list[str]:
        return self._store.export(list(job_ids) or None)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        return self._store.import_lines(lines)

    def forget(self, job_id: str) -> None:
        self._store.forget(job_id)

    def pulse(self) -> dict[str, str]:
        return self._store.pulse()

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        version = find_policy(self._store.job(job_id).spec.policy).version
        self._store.restart(job_id, policy_version=version, pulse=pulse)

    def pardon(self, job_id: str, batch_size: int) -> None:
        self._store.pardon(job_id, batch_size)

    def close(self) -> None:
        self._store.close()


class StoredJobs(LocalJobs):
    """The jobs of a shared store that may be unreachable. Each access first delivers the messages that wait for it."""

    def __init__(self, backend: StoreBackend, address: str) -> None:
        self._backend, self._outbox = backend, Outbox(backend)
        self.address = address

    @property
    def _store(self) -> Store:
        self._outbox.deliver(look())
        return self._backend.store()

    def find(self, job_id: str) -> RecurringJob:
        return ResilientJob.find(self._outbox, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        return ResilientJob.register(self._outbox, spec, void=void)

    def close(self) -> None:
        self._outbox.close()


class RemoteJobs:
    """The jobs of a service. The JSON that `/api/v1` answers is returned unchanged."""

    def __init__(self, service: Service) -> None:
        self._service, self._outbox = service, Outbox(ServiceBackend(service))
        self.address = service.address

    def _call(self, method: str, path: str, read: Callable[[Any], T], *, patience: Patience, **request: Any) -> T:
        """Send a request after the messages that wait for the service."""
        self._outbox.deliver(patience)
        return self._service.call(method, path, read, patience=patience, **request)

    def find(self, job_id: str) -> RecurringJob:
        return ResilientJob.find(self._outbox, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        return ResilientJob.register(self._outbox, spec, void=void)

    def briefs(self) -> list[Json]:
        rows: list[Json] = []
        while True:
            query = {"offset": len(rows), "limit": PAGE}
            page = self._call("GET", "/jobs", lambda data: list(data["jobs"]), query=query, patience=look())
            rows += page
            if len(page) < PAGE:
                return rows

    def full(self, job_id: str) -> Json:
        return self._call("GET", of_job(job_id), dict, patience=look())

    def log_end(self, job_id: str, number: int) -> str:
        path = of_job(job_id, f"/trials/{number}/log")
        return self._call("GET", path, lambda data: str(data["log"]), patience=look())

    def export(self, job_ids: Iterable[str]) -> list[str]:
        return self._call("GET", "/export", str.splitlines, query={"job": list(job_ids)}, patience=look())

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        body = "".join(f"{line.rstrip()}\n" for line in lines)
        return self._call("POST", "/import", lambda data: list(data["jobs"]), body=body, patience=ONCE)

    def forget(self, job_id: str) -> None:
        self._call("DELETE", of_job(job_id), lambda data: None, patience=ONCE)

    def pulse(self) -> dict[str, str]:
        return self._call("GET", "/pulse", dict, patience=look())

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        body = {"pulse": pulse}
        self._call("POST", of_job(job_id, "/reset"), lambda data: None, body=body, patience=ONCE)

    def pardon(self, job_id: str, batch_size: int) -> None:
        body = {"batch_size": batch_size}
        self._call("POST", of_job(job_id, "/pardon"), lambda data: None, body=body, patience=ONCE)

    def close(self) -> None:
        self._outbox.close()
