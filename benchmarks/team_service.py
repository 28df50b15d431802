"""A team's service at full size: 10,000 jobs with 1,000,000 trials in Postgres, while 200 trainings report over HTTP.

    python benchmarks/team_service.py [--jobs 10000] [--past 90 110] [--trainings 200] [--seconds 180] [--json FILE]

The past is made by `scale.py`: real asks and tells of a few jobs, copied under other names, with their digests. Then
one `zeus serve` with two workers answers trainings and people at once. A training asks, sends a heartbeat for each
epoch, and tells; it repeats each request until it is answered. A person opens lists, jobs and filtered tables of
trials, as the page does. After a third of the time a worker is killed with -9, and after two thirds Postgres restarts.

At the end the store is read: each trial that was asked for must have ended as its training told, and there must be no
other. The age of the totals is how long ago the oldest ask was answered that they do not count, where they do not say
that jobs are missing or outdated. Before all that, a bare FastAPI application with as many workers, which inserts a row
and commits, answers as many clients: what this machine can do. With --check the exit code is 1 if a report was lost or
counted twice, totals were older than 5 s, or a 95th percentile is above 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for a server of one's own

import psycopg

from harness import percentile
from scale import (
    BATCH_SIZES,
    LONG_JOB,
    copy_digests,
    disk_bytes,
    fill,
    make_templates,
    megabytes,
    opened,
    places,
    quoted,
    timed,
)
from service import WORKERS, Client, Replica, Seen
from support.postgres import PostgresServer
from support.served import hold_port
from zeus.job import Ending
from zeus.service.auth import new
from zeus.store import Store, open_store
from zeus.store.api import utc
from zeus.store.sql.database import TransactionMode
from zeus.store.tokens import Scope

EPOCHS = 3  # heartbeats of a training
LOOK_SECONDS = 0.2  # between two pages that a person opens
BOUND_MS, BOUND_AGE = 200.0, 5.0
BARE_SECONDS = 15.0
VIEWS = {
    "list": "/api/v1/jobs?limit=50",
    "list, sorted": "/api/v1/jobs?limit=50&sort=joules&desc=true",
    "list, filtered": "/api/v1/jobs?limit=50&state=losing",
    "totals": "/api/v1/summary",
    "fleet": "/api/v1/fleet?weeks=12",
    "job": "/api/v1/jobs/{job}?tries=12&history=300",
    "trials, filtered": "/api/v1/jobs/{job}/trials?newest=true&limit=12&curves=false&batch_size={size}",
    "long job": "/api/v1/jobs/{long}?tries=12&history=300",
    "long job's trials, filtered": "/api/v1/jobs/{long}/trials?newest=true&limit=12&curves=false&batch_size={size}",
}


# ---------------------------------------------------------------------- a bare service, for comparison


def bare_app() -> Any:
    """A FastAPI application that inserts one row for each request and commits it."""
    from fastapi import FastAPI
    from sqlalchemy import create_engine, text

    engine = create_engine(os.environ["BARE_STORE"], pool_size=16, max_overflow=0)
    put = text("INSERT INTO bare VALUES (:key, :row)")
    app = FastAPI()

    @app.post("/rows")
    def rows(body: dict[str, Any]) -> dict[str, bool]:
        with engine.begin() as connection:
            connection.execute(put, {"key": body["key"], "row": "x" * 400})
        return {"ok": True}

    return app


def bare_requests(url: str, folder: Path, clients: int) -> dict[str, float]:
    """What the bare application does on this machine."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("CREATE TABLE IF NOT EXISTS bare (key text PRIMARY KEY, row text)")
    door = hold_port()
    port = door.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "team_service:bare_app", "--factory", "--app-dir", str(HERE)]
    command += ["--port", str(port), "--workers", str(WORKERS), "--log-level", "warning"]
    seen, until = Seen(), 0.0
    with (folder / "bare.log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**os.environ, "BARE_STORE": url}, stdout=log, stderr=log, start_new_session=True
        )

    async def work() -> None:
        client = Client([port], "", seen)
        while time.perf_counter() < until:
            await client.post("/rows", {"key": uuid4().hex})
        client.close()

    async def crowd() -> None:
        nonlocal until
        until = time.perf_counter() + 60.0
        await Client([port], "", Seen()).post("/rows", {"key": uuid4().hex})  # until it answers
        until = time.perf_counter() + BARE_SECONDS
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(work())

    try:
        asyncio.run(crowd())
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        door.close()
    return {"a_second": round(len(seen.first) / BARE_SECONDS, 1), **times_of(seen.first)}


HERE = Path(__file__).parent


# ---------------------------------------------------------------------- trainings and people


@dataclass
class Load:
    """What trainings and people have seen."""

    known: int  # trials that the totals counted before
    seen: Seen = field(default_factory=Seen)
    asked: dict[tuple[str, int], float] = field(default_factory=dict)  # trial -> when its ask was answered
    views: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    ages: list[float] = field(default_factory=list)  # of the totals, in seconds
    uncounted: int = 0  # the most jobs that totals have said to be missing
    outdated: int = 0  # the most jobs that they have said to count as before
    megabytes: list[int] = field(default_factory=list)
    over: bool = False


async def training(client: Client, load: Load, names: list[str], pause: float, rng: random.Random) -> None:
    """Run one trial after another until it is over."""
    while not load.over:
        job = rng.choice(names)
        path = f"/api/v1/jobs/{quoted(job)}"
        asked = await client.post(f"{path}/ask", {"gpu_name": "V100", "max_watts": 250.0}, key=uuid4().hex)
        number, batch_size = asked["ask"]["number"], asked["decision"]["batch_size"]
        assert (job, number) not in load.asked, "two trainings were given one trial"
        load.asked[job, number] = time.perf_counter()
        joules = 1000.0 + len(load.asked)  # each trial's own
        for epoch in range(1, EPOCHS + 1):
            if load.over:
                break
            await asyncio.sleep(pause * rng.uniform(0.5, 1.5))
            so_far = {"joules": joules * epoch, "seconds": 10.0 * epoch, "epochs": epoch, "metric": 0.5}
            await client.post(f"{path}/trials/{number}/heartbeat", {"so_far": {"ending": "lost", **so_far}})
        told = {"ending": "converged", "joules": joules, "seconds": 3.0 * batch_size, "epochs": EPOCHS, "metric": 0.9}
        await client.post(f"{path}/trials/{number}/tell", told)
        load.seen.told[job, number] = joules
    client.close()


async def person(port: int, token: str, load: Load, names: list[str], rng: random.Random) -> None:
    """Open one view after another until it is over."""
    while not load.over:
        for view, pattern in VIEWS.items():
            await asyncio.sleep(LOOK_SECONDS)
            long, size = quoted(LONG_JOB), rng.choice(BATCH_SIZES)
            path = pattern.format(job=quoted(rng.choice(names)), long=long, size=size)
            begun = time.perf_counter()
            told = await asyncio.to_thread(get, port, token, path)
            if told is None:
                load.failed[view] += 1  # a worker or Postgres is away
                continue
            load.views[view].append(time.perf_counter() - begun)
            if view == "totals":
                load.uncounted = max(load.uncounted, told["uncounted"])
                load.outdated = max(load.outdated, told["outdated"])
                missing = sorted(load.asked.values())[max(0, told["trials"] - load.known) :]
                if not told["uncounted"] and not told["outdated"]:
                    load.ages.append(max(0.0, begun - missing[0]) if missing else 0.0)


def get(port: int, token: str, path: str) -> Any:
    """The JSON of an answer; None if there is none."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except OSError:
        return None


def kill_a_worker(leader: int) -> None:
    """One of the processes that the service has started, with -9."""
    for child in Path(f"/proc/{leader}/task/{leader}/children").read_text().split():
        if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), signal.SIGKILL)
            return
    raise AssertionError("the service has no workers")


async def trouble(load: Load, replica: Replica, server: PostgresServer, seconds: float) -> None:
    """Cause the faults, and say when it is over."""
    begun = time.perf_counter()

    async def until(share: float) -> None:
        while time.perf_counter() - begun < share * seconds:
            load.megabytes.append(await asyncio.to_thread(megabytes, replica.pid))
            await asyncio.sleep(2.0)

    await until(1 / 3)
    kill_a_worker(replica.pid)
    await until(2 / 3)
    await asyncio.to_thread(server.down)
    await asyncio.to_thread(server.up)
    await until(1.0)
    load.over = True


async def storm(
    options: argparse.Namespace, replica: Replica, server: PostgresServer, token: str, names: list[str]
) -> Load:
    """All trainings and people, until it is over."""
    await replica.answers()
    while (totals := get(replica.port, token, VIEWS["totals"])) is None or totals["uncounted"]:
        await asyncio.sleep(1.0)
    load = Load(totals["trials"])
    async with asyncio.TaskGroup() as crowd:
        crowd.create_task(trouble(load, replica, server, options.seconds))
        for number in range(options.trainings):
            client = Client([replica.port], token, load.seen)
            crowd.create_task(training(client, load, names, options.pause, random.Random(number)))
        for number in range(options.people):
            crowd.create_task(person(replica.port, token, load, names, random.Random(-1 - number)))
    return load


# ---------------------------------------------------------------------- the account


def account(store: Store, load: Load, before: dict[str, int]) -> dict[str, int]:
    """Compare what the store holds of the jobs that ran with what the trainings were told."""
    told, lost, twice = dict(load.seen.told), 0, 0
    for job in sorted({name for name, _ in load.asked}):
        for kept in store.trials(job, after=before[job]):
            joules = told.pop((job, kept.trial.number), None)
            if joules is None:
                twice += 1  # an ask that was repeated has opened another
            elif kept.trial.ending is not Ending.CONVERGED or kept.trial.outcome.joules != joules:
                lost += 1
    return {"told": len(load.seen.told), "lost_or_changed": lost + len(told), "opened_twice": twice}


def wrong_in(log: Path) -> dict[str, int]:
    """The last line of each traceback in a log, and how often it stands there."""
    ends = [one.split("\n") for one in log.read_text().split("Traceback (most recent call last):")[1:]]
    return dict(Counter(next((line for line in lines[1:] if line[:1].strip()), "") for lines in ends))


def trials_of(url: str) -> dict[str, int]:
    """How many trials each job has."""
    with opened(url) as database, database.transaction(TransactionMode.READ) as db:
        return {str(name): int(count) for name, count in db.rows("SELECT id, trials FROM zeus_jobs")}


def analyze(url: str) -> None:
    """Tell Postgres what is in its tables, as it finds out by itself after a while."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as admin:
        admin.execute("VACUUM (ANALYZE)")


def times_of(seconds: list[float]) -> dict[str, float]:
    """In milliseconds."""
    if not seconds:
        return {}
    shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}
    return {name: round(percentile(seconds, share) * 1e3, 1) for name, share in shares.items()}


@contextmanager
def filled(options: argparse.Namespace, server: PostgresServer) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
    """A store of that size, the names of its jobs, and what making it took."""
    url = server.new_database()
    with places("sqlite") as (new_store, _):
        templates, names = new_store(), list[str]()
        took = timed(make_templates, templates, *options.past, options.long)
        took += timed(lambda: names.extend(fill(url, templates, options.jobs)))
    store = open_store(url)
    took += timed(copy_digests, store, names) + timed(analyze, url)
    store.close()
    counts = trials_of(url)
    size = {"jobs": len(counts), "trials": sum(counts.values()), "fill_s": round(took, 1), "bytes": disk_bytes(url)}
    yield url, names, size


def run(options: argparse.Namespace, server: PostgresServer) -> dict[str, Any]:
    with filled(options, server) as (url, names, size):
        print(f"store: {size}", flush=True)
        before = trials_of(url)
        bare = bare_requests(server.new_database(), server.folder, options.trainings)
        print(f"bare FastAPI and Postgres, {options.trainings} clients: {bare}", flush=True)
        store = open_store(url)
        kept, secret = new("benchmark", Scope.ADMIN, utc(time.time()))
        store.tokens.add(kept)
        replica = Replica(url, server.folder / "service.log")
        try:
            begun = time.perf_counter()
            load = asyncio.run(storm(options, replica, server, secret, names))
            took = time.perf_counter() - begun
        finally:
            replica.end(signal.SIGTERM)
        found = told(load, took, bare)
        found |= {"store": size, "bare": bare, **account(store, load, before)}
        found["wrong"] = wrong_in(server.folder / "service.log")
        store.close()
        return found


def ages(some: list[float]) -> dict[str, float]:
    """Of the totals that said to be complete."""
    some = some or [0.0]
    return {"seen": len(some), "p95": round(percentile(some, 0.95), 2), "most": round(max(some), 2)}


def told(load: Load, took: float, bare: dict[str, float]) -> dict[str, Any]:
    requests = [*load.seen.first, *load.seen.repeated]
    at_once = times_of(load.seen.first)
    return {
        "reports": {"a_second": round(len(requests) / took, 1), "at_once": at_once, **times_of(requests)},
        "p50_to_bare": round(at_once["p50_ms"] / bare["p50_ms"], 2),
        "statuses": dict(sorted(load.seen.statuses.items())),
        "hung_up": load.seen.hung_up,
        "views": {name: {"seen": len(some), **times_of(some)} for name, some in load.views.items()},
        "views_not_answered": dict(load.failed),
        "totals_age_s": ages(load.ages),
        "said": {"uncounted": load.uncounted, "outdated": load.outdated},
        "workers_mb": {"first": load.megabytes[0], "most": max(load.megabytes), "last": load.megabytes[-1]},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--past", type=int, nargs=2, default=(90, 110), help="least and most recurrences of a job")
    parser.add_argument("--long", type=int, default=2_000, help="recurrences of one job in 500")
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--people", type=int, default=2)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds of an epoch")
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    with PostgresServer.start() as server:
        found = run(options, server)
    for name, value in found.items():
        print(f"{name:<20} {value}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    slow = [name for name, one in found["views"].items() if one["p95_ms"] > BOUND_MS]
    wrong = found["lost_or_changed"] or found["opened_twice"] or found["totals_age_s"]["most"] > BOUND_AGE
    if slow:
        print(f"above {BOUND_MS:g} ms at the 95th percentile: {', '.join(slow)}")
    return int(options.check and bool(slow or wrong))


if __name__ == "__main__":
    sys.exit(main())
