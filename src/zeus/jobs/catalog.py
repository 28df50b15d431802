"""Where jobs are kept, a store or a service: what `zeus jobs` and `zeus run` need of either."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from zeus.env import prices
from zeus.job import JobSpec
from zeus.jobs.api import RecurringJob
from zeus.jobs.local import LocalJob
from zeus.jobs.remote.client import Service, of_job
from zeus.jobs.remote.job import ResilientJob
from zeus.jobs.remote.outbox import Outbox
from zeus.jobs.remote.retry import LOOK, ONCE, Patience
from zeus.jobs.remote.service_backend import ServiceBackend
from zeus.jobs.remote.store_backend import StoreBackend
from zeus.policy.registry import find_policy
from zeus.store import Store, open_store
from zeus.store.address import address_of, is_service, resolve, shown

Json = dict[str, Any]
T = TypeVar("T")
PAGE = 500


def open_jobs(where: str | Store | None = None) -> Jobs:
    """The jobs that are kept there.

    Args:
        where: A store, or the address of a store or of a service; default: ZEUS_STORE, or the user's own file.

    Raises:
        InputError: Not such an address. Whether anybody answers there is found out when it is needed.
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


class Jobs(Protocol):
    """All jobs of one place. Errors are those of `Store`."""

    address: str  # to be shown: no secret is in it

    def find(self, job_id: str) -> RecurringJob:
        """A job that somebody has registered."""

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """The job of this spec, made or revised; `void` is as in `Store.register`."""

    def briefs(self) -> list[Json]:
        """A line on each job, by id."""

    def full(self, job_id: str) -> Json:
        """Everything about one."""

    def export(self, job_ids: Iterable[str]) -> list[str]:
        """All facts of these, or of all where none is named, as lines of JSON."""

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """Take in what `export` gave, all or nothing; the ids."""

    def forget(self, job_id: str) -> None:
        """Remove one with all its facts."""

    def pulse(self) -> dict[str, str]:
        """For each job a text that changes whenever its facts or its terms do."""

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        """Remove its facts; it stays registered. With a pulse: only while that is still its own."""

    def pardon(self, job_id: str, batch_size: int) -> None:
        """A size that crashed may be offered again."""

    def close(self) -> None:
        """Let go of connections."""


class LocalJobs:
    """Those of a store that is there as long as this process is."""

    def __init__(self, store: Store, address: str) -> None:
        self._here = store
        self.address = address

    @property
    def _store(self) -> Store:
        return self._here

    def find(self, job_id: str) -> RecurringJob:
        """By its id."""
        return LocalJob(self._store, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """By its spec."""
        return LocalJob.register(self._store, spec, void=void)

    def briefs(self) -> list[Json]:
        """Read one by one."""
        from zeus.jobs.report import brief_of

        return [brief_of(self._store, job_id, prices=prices()) for job_id in sorted(self._store.pulse())]

    def full(self, job_id: str) -> Json:
        """Folded here."""
        from zeus.jobs.report import full, report

        return full(report(self._store, job_id), prices())

    def export(self, job_ids: Iterable[str]) -> list[str]:
        """As of one moment."""
        return self._store.export(list(job_ids) or None)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """In one transaction."""
        return self._store.import_lines(lines)

    def forget(self, job_id: str) -> None:
        """For good."""
        self._store.forget(job_id)

    def pulse(self) -> dict[str, str]:
        """The store's."""
        return self._store.pulse()

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        """With the newest version of its policy."""
        version = find_policy(self._store.job(job_id).spec.policy).version
        self._store.restart(job_id, policy_version=version, pulse=pulse)

    def pardon(self, job_id: str, batch_size: int) -> None:
        """An event of the job."""
        self._store.pardon(job_id, batch_size)

    def close(self) -> None:
        """The store's."""
        self._store.close()


class StoredJobs(LocalJobs):
    """Those of a store that others share and that may be away. Looking at them delivers what waits."""

    def __init__(self, backend: StoreBackend, address: str) -> None:
        self._backend, self._outbox = backend, Outbox(backend)
        self.address = address

    @property
    def _store(self) -> Store:
        self._outbox.deliver(LOOK)
        return self._backend.store()

    def find(self, job_id: str) -> RecurringJob:
        """By its id."""
        return ResilientJob.find(self._outbox, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """By its spec; later where the store is away."""
        return ResilientJob.register(self._outbox, spec, void=void)

    def close(self) -> None:
        """A last try for what waits."""
        self._outbox.close()


class RemoteJobs:
    """Those of a service, in its own words: what `/api/v1` answers is what `--json` prints."""

    def __init__(self, service: Service) -> None:
        self._service, self._outbox = service, Outbox(ServiceBackend(service))
        self.address = service.address

    def _call(self, method: str, path: str, read: Callable[[Any], T], *, patience: Patience, **request: Any) -> T:
        """A request, after whatever waits."""
        self._outbox.deliver(patience)
        return self._service.call(method, path, read, patience=patience, **request)

    def find(self, job_id: str) -> RecurringJob:
        """By its id."""
        return ResilientJob.find(self._outbox, job_id)

    def register(self, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """By its spec; later where the service is away."""
        return ResilientJob.register(self._outbox, spec, void=void)

    def briefs(self) -> list[Json]:
        """Page by page."""
        rows: list[Json] = []
        while True:
            query = {"offset": len(rows), "limit": PAGE}
            page = self._call("GET", "/jobs", lambda said: list(said["jobs"]), query=query, patience=LOOK)
            rows += page
            if len(page) < PAGE:
                return rows

    def full(self, job_id: str) -> Json:
        """Folded there."""
        return self._call("GET", of_job(job_id), dict, patience=LOOK)

    def export(self, job_ids: Iterable[str]) -> list[str]:
        """As of one moment."""
        return self._call("GET", "/export", str.splitlines, query={"job": list(job_ids)}, patience=LOOK)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """In one transaction there."""
        body = "".join(f"{line.rstrip()}\n" for line in lines)
        return self._call("POST", "/import", lambda said: list(said["jobs"]), body=body, patience=ONCE)

    def forget(self, job_id: str) -> None:
        """For good."""
        self._call("DELETE", of_job(job_id), lambda said: None, patience=ONCE)

    def pulse(self) -> dict[str, str]:
        """The service's."""
        return self._call("GET", "/pulse", dict, patience=LOOK)

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        """With the newest version of its policy there."""
        body = {"pulse": pulse}
        self._call("POST", of_job(job_id, "/reset"), lambda said: None, body=body, patience=ONCE)

    def pardon(self, job_id: str, batch_size: int) -> None:
        """An event of the job."""
        body = {"batch_size": batch_size}
        self._call("POST", of_job(job_id, "/pardon"), lambda said: None, body=body, patience=ONCE)

    def close(self) -> None:
        """A last try for what waits."""
        self._outbox.close()
