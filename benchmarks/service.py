"""Load test: two replicas of the service on one Postgres, while one replica is killed and the database restarts.

    python benchmarks/service.py [--pairs 20000] [--clients 200] [--jobs 40] [--json] [--check]

Each replica has two workers. Clients ask and tell at either replica, and repeat each request until it is answered.
After a third of the pairs a replica is killed with -9 and restarted; after two thirds, the database. At the end the
store is read: every ask must have opened one trial, and every trial must have ended once, as its own client told.

A client is one connection with a token. It repeats a request that met no server, 429 or 503, and counts any other
failure. For comparison, bare inserts of a trial's row are timed, each committed, over as many connections as the
service holds. PostgreSQL is started for this test with its default durability. All processes share the cores of this
machine. With --check the exit code is 1 if a report was lost or counted twice, or a client saw worse than 503.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for a server of one's own

from harness import percentile
from support.postgres import PostgresServer
from support.served import hold_port
from zeus.job import Ending, JobSpec
from zeus.service.app import THREADS
from zeus.service.auth import new
from zeus.store import Store, open_store
from zeus.store.api import utc
from zeus.store.tokens import Scope

REPLICAS, WORKERS = 2, 2
CONNECTIONS = REPLICAS * WORKERS * THREADS
PATIENCE = 120.0  # seconds for which a client repeats a request
AGAIN = {429, 503}


# ---------------------------------------------------------------------- the other side


class Replica:
    """One `zeus serve` in its own process group."""

    def __init__(self, store: str, log: Path) -> None:
        self._door = hold_port()  # also while it is down
        self.port: int = self._door.getsockname()[1]
        self._store, self._log = store, log
        self.up()

    def up(self) -> None:
        command = [sys.executable, "-m", "zeus.cli", "serve", "--store", self._store, "--port", str(self.port)]
        command += ["--workers", str(WORKERS), "--rate", "0", "--require-token", "--log", "json"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    @property
    def pid(self) -> int:
        """Of its first process, which leads the group."""
        return self._process.pid

    def end(self, how: signal.Signals) -> None:
        os.killpg(self._process.pid, how)  # also ends its workers, which are in the same group
        self._process.wait(60)

    async def answers(self) -> None:
        """Wait until the replica answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            except OSError:
                assert self._process.poll() is None, "a replica did not start; see its log"
                assert time.monotonic() < deadline, "a replica took too long to start"
                await asyncio.sleep(0.05)


def bare(url: str, inserts: int) -> tuple[float, list[float]]:
    """Bare inserts per second and their times, over as many connections as the service holds."""
    import psycopg

    address = url.replace("+psycopg", "")
    row = ("asr", 1, 1, *(utc(time.time()),) * 3, None, "x" * 400)
    with psycopg.connect(address, autocommit=True) as admin:
        admin.execute(
            "CREATE TABLE bare (job_id text, number bigint, recurrence int, sequence int, asked_at text,"
            " changed_at text, leased_until text, so_far text, trial text, PRIMARY KEY (job_id, number))"
        )

    def some(first: int) -> list[float]:
        took = []
        with psycopg.connect(address) as db:
            for number in range(first, inserts, CONNECTIONS):
                begun = time.perf_counter()
                db.execute("INSERT INTO bare VALUES (%s,%s,%s,%s,%s,%s,%s,%s,%s)", (row[0], number, *row[1:]))
                db.commit()
                took.append(time.perf_counter() - begun)
        return took

    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as crowd:
        found = [one for many in crowd.map(some, range(CONNECTIONS)) for one in many]
    return inserts / (time.perf_counter() - begun), found


# ---------------------------------------------------------------------- the clients


@dataclass
class Seen:
    """What all clients have seen."""

    statuses: Counter[int] = field(default_factory=Counter)
    hung_up: int = 0
    first: list[float] = field(default_factory=list)  # seconds of requests answered at the first attempt
    repeated: list[float] = field(default_factory=list)  # seconds of requests that met a fault, with repeats
    told: dict[tuple[str, int], float] = field(default_factory=dict)  # job and trial -> the joules that were told
    pairs: int = 0


class Client:
    """A client with one connection, which it reopens when it is lost."""

    def __init__(self, ports: list[int], token: str, seen: Seen) -> None:
        self._ports, self._token, self._seen = ports, token, seen
        self._turn = random.randrange(len(ports))
        self._link: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, body: dict[str, Any], key: str = "") -> dict[str, Any]:
        """Send a request until it is answered."""
        begun, wait, tries = time.perf_counter(), 0.05, 0
        while True:
            tries += 1
            try:
                async with asyncio.timeout(60):
                    status, answer = await self._once(path, body, key)
            except (OSError, EOFError, TimeoutError):
                self._seen.hung_up += 1
                self.close()
            else:
                self._seen.statuses[status] += 1
                if status < 300:
                    took = self._seen.first if tries == 1 else self._seen.repeated
                    took.append(time.perf_counter() - begun)
                    return answer
                if status not in AGAIN and status < 500:
                    raise RuntimeError(f"{path}: {status} {answer}")
                self.close()  # try the other replica
            if time.perf_counter() - begun > PATIENCE:
                raise RuntimeError(f"{path}: no answer in {PATIENCE:g} s")
            await asyncio.sleep(wait * random.uniform(0.5, 1.0))
            wait = min(2 * wait, 1.0)

    async def _once(self, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        if self._link is None:
            self._turn = (self._turn + 1) % len(self._ports)
            self._link = await asyncio.open_connection("127.0.0.1", self._ports[self._turn])
        reader, writer = self._link
        content = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self._token}\r\n"
        head += f"Idempotency-Key: {key}\r\n" if key else ""
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        writer.write((head + content).encode())
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        answer = await reader.readexactly(int(fields["content-length"]))
        return int(lines[0].split()[1]), json.loads(answer)

    def close(self) -> None:
        if self._link is not None:
            self._link[1].close()
            self._link = None


async def work(client: Client, seen: Seen, rows: Any) -> None:
    """Ask and tell until no pairs are left."""
    for pair, job in rows:
        path = f"/api/v1/jobs/{job}"
        asked = await client.post(f"{path}/ask", {"gpu_name": "V100", "max_watts": 250.0}, key=uuid4().hex)
        number, joules = asked["ask"]["number"], 1000.0 + pair  # each pair's own
        outcome = {"ending": "converged", "joules": joules, "seconds": 10.0, "epochs": 3, "metric": 0.9}
        await client.post(f"{path}/trials/{number}/tell", outcome)
        assert (job, number) not in seen.told, "two clients were given one trial"
        seen.told[job, number] = joules
        seen.pairs += 1
    client.close()


async def trouble(seen: Seen, pairs: int, replicas: list[Replica], server: PostgresServer) -> None:
    """Cause the faults: kill a replica, then restart the database."""
    while seen.pairs < pairs / 3:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(replicas[0].end, signal.SIGKILL)
    replicas[0].up()
    while seen.pairs < pairs * 2 / 3:
        await asyncio.sleep(0.05)
    await asyncio.to_thread(server.down)
    await asyncio.to_thread(server.up)


async def storm(options: argparse.Namespace, replicas: list[Replica], server: PostgresServer, token: str) -> Any:
    """Run all pairs with all clients. Return what they saw and how long it took."""
    for replica in replicas:
        await replica.answers()
    seen, names = Seen(), [f"job-{number}" for number in range(options.jobs)]
    rows = iter([(pair, names[pair % len(names)]) for pair in range(options.pairs)])
    ports = [replica.port for replica in replicas]
    begun = time.perf_counter()
    fate = asyncio.create_task(trouble(seen, options.pairs, replicas, server))
    async with asyncio.TaskGroup() as crowd:
        for _ in range(options.clients):
            crowd.create_task(work(Client(ports, token, seen), seen, rows))
    took = time.perf_counter() - begun
    await fate
    return seen, took


# ---------------------------------------------------------------------- the account


def account(store: Store, seen: Seen) -> dict[str, int]:
    """Compare what the store holds with what the clients were told."""
    told, lost, twice, strange = dict(seen.told), 0, 0, 0
    for job in map(store.job, store.pulse()):
        trials = [kept.trial for kept in store.trials(job.id)]
        twice += len(store.log(job.id).events) - 2 * len(trials)  # one event for each ask, one for each tell
        for trial in trials:
            joules = told.pop((job.id, trial.number), None)
            if joules is None:
                twice += 1  # an ask that was repeated has opened another
            elif trial.ending is not Ending.CONVERGED or trial.outcome is None:
                lost += 1
            elif trial.outcome.joules != joules:
                strange += 1
    return {"pairs": len(seen.told), "lost": lost + len(told), "counted_twice": twice, "changed": strange}


def run(options: argparse.Namespace, server: PostgresServer) -> dict[str, Any]:
    url, log = server.new_database(), server.folder / "replicas.log"
    store = open_store(url)
    for number in range(options.jobs):
        job = f"job-{number}"
        store.register(JobSpec(job_id=job, job_id_prefix=job, batch_sizes=(8, 16, 32, 64), default_batch_size=32))
    kept, secret = new("benchmark", Scope.REPORT, utc(time.time()))
    store.tokens.add(kept)
    inserts_a_second, inserts = bare(url, min(6000, 4 * options.pairs))
    replicas: list[Replica] = []
    try:
        replicas += [Replica(url, log) for _ in range(REPLICAS)]
        seen, took = asyncio.run(storm(options, replicas, server, secret))
    finally:
        for replica in replicas:
            replica.end(signal.SIGTERM)
    requests = [*seen.first, *seen.repeated]
    rate, p99 = 2 * seen.pairs / took, percentile(requests, 0.99)
    bare_p99 = percentile(inserts, 0.99)
    found = {
        **account(store, seen),
        "clients": options.clients,
        "jobs": options.jobs,
        "seconds": round(took, 1),
        "statuses": dict(sorted(seen.statuses.items())),
        "hung_up": seen.hung_up,
        "worse_than_503": sum(count for status, count in seen.statuses.items() if status >= 500 and status != 503),
        "requests_a_second": round(rate),
        "p50_ms": round(statistics.median(requests) * 1000, 1),
        "p99_ms": round(p99 * 1000, 1),
        "p99_answered_at_once_ms": round(percentile(seen.first, 0.99) * 1000, 1),
        "bare_inserts_a_second": round(inserts_a_second),
        "bare_p99_ms": round(bare_p99 * 1000, 1),
        "throughput_to_bare": round(rate / inserts_a_second, 3),
        "p99_to_bare": round(p99 / bare_p99, 1),
        "tracebacks": log.read_text().count("Traceback"),
    }
    store.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    try:
        server = PostgresServer.start()
    except LookupError as missing:
        print(f"PostgreSQL: {missing}", file=sys.stderr)
        return 1
    with server:
        found = run(options, server)
    if options.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name:<24} {value}")
    names = ("lost", "counted_twice", "changed", "worse_than_503")
    sound = found["pairs"] == options.pairs and not any(found[name] for name in names)
    return int(options.check and not sound)


if __name__ == "__main__":
    sys.exit(main())
