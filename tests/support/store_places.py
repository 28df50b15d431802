"""All kinds of store, for the contract tests."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.store_worker import first_size
from zeus.device.clock import VirtualClock
from zeus.job import Gpus, JobSpec, Trial, replace
from zeus.store import MemoryStore, Request, Store, open_store

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16)
HERE = Request(gpus=Gpus("V100", 1, 250.0))


@dataclass
class Place:
    """Where stores lie: `open` gives the same one each time, as another process would, `another` an empty one."""

    make: Callable[[str, VirtualClock], Store]
    url: str | None = None  # by which other processes reach the first; None: they cannot
    empty: Callable[[], str] | None = None  # the address of one that nobody has opened yet: it has no tables
    clock: VirtualClock = field(default_factory=VirtualClock)
    opened: list[Store] = field(default_factory=list)
    closed: Callable[[], None] = lambda: None

    def open(self, name: str = "zeus") -> Store:
        self.opened.append(self.make(name, self.clock))
        return self.opened[-1]

    def another(self) -> Store:
        return self.open("another")

    def close(self) -> None:
        for store in self.opened:
            store.close()
        self.closed()


def memory(request: pytest.FixtureRequest) -> Place:
    kept: dict[str, Store] = {}
    return Place(lambda name, clock: kept.setdefault(name, MemoryStore(clock.wall)))


def sqlite(request: pytest.FixtureRequest) -> Place:
    folder: Path = request.getfixturevalue("tmp_path") / "a b"
    folder.mkdir()

    def url(name: str) -> str:
        return f"sqlite:///{folder}/{name}.db"

    def make(name: str, clock: VirtualClock) -> Store:
        if not (folder / f"{name}.db").exists():
            shutil.copy(_sqlite_template(), folder / f"{name}.db")
        return open_store(url(name), wall=clock.wall)

    make("zeus", VirtualClock()).close()
    return Place(make, url("zeus"), lambda: url("empty"))


@functools.cache
def _sqlite_template() -> Path:
    """A store without jobs. Its tables are there: to make them takes longer than most tests."""
    made = tempfile.TemporaryDirectory(prefix="zeus-store-")
    atexit.register(made.cleanup)
    path = Path(made.name) / "zeus.db"
    open_store(f"sqlite:///{path}").close()
    return path


def postgresql(request: pytest.FixtureRequest) -> Place:
    server: PostgresServer = request.getfixturevalue("postgres")
    urls = {"zeus": server.new_store()}

    def make(name: str, clock: VirtualClock) -> Store:
        if name not in urls:
            urls[name] = server.new_store()
        return open_store(urls[name], wall=clock.wall)

    def closed() -> None:
        for url in urls.values():
            server.clear_store(url)

    return Place(make, urls["zeus"], server.new_database, closed=closed)


# A new kind of store is added here and nowhere else.
STORES = {"memory": memory, "sqlite": sqlite, "postgres": postgresql}
REACHABLE = {name: make for name, make in STORES.items() if name != "memory"}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each kind of store."""
    yield from _closing(STORES[request.param](request))


@pytest.fixture(params=REACHABLE)
def reachable(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Each kind that several processes can share."""
    yield from _closing(REACHABLE[request.param](request))


def _closing(place: Place) -> Iterator[Place]:
    yield place
    place.close()


def ask(store: Store, recurrence: int | None = None) -> Trial:
    return store.ask("asr", replace(HERE, recurrence=recurrence), first_size)


def sound(store: Store, job_id: str = "asr") -> None:
    """Numbers go on from the first of this life, one by one; each decision saw exactly what came before it."""
    trials = [kept.trial for kept in store.trials(job_id)]
    first = store.job(job_id).first
    assert [trial.number for trial in trials] == list(range(first, first + len(trials)))
    events = store.log(job_id).events
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert all(trial.decision.reason == str(trial.asked - 1) for trial in trials)
