"""Measures asks, tells and lists in stores of 10 to 100,000 jobs: SQLite, PostgreSQL, and the service over both.

    python benchmarks/scale.py [--jobs 10 100 ...] [--lengths 10 100 ...] [--only sqlite|postgres] [--quick]

A few jobs get their past by real asks and tells: most have 20 to 50 recurrences (--recurrences), one in 500 has 2,000
(--long). Their rows are then copied under other names, so that the store holds what real use would have written.
Writers are processes, or connections to the service. Each asks and tells for some seconds, either on jobs drawn at
random or all on one job. On random jobs, most asks of a process compute a policy state from the whole past.

PostgreSQL is started for this test with its default settings. The service has two workers. Everything shares the cores
of this machine. What takes longer than --patience seconds is stopped and shown as such.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for a server of one's own

from service import Client, Replica, Seen, percentile
from support.postgres import PostgresServer
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache
from zeus.client.recurring import RecurringJob
from zeus.client.report import Digests, digest_of, full, report
from zeus.errors import NotKnown
from zeus.job import Ending, EpochPoint, Gpus, JobSpec, Kind, Outcome, UsageSegment, replace
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.service.auth import new
from zeus.service.overview import Overview
from zeus.store import Request, Store, open_store
from zeus.store.api import Digest, utc
from zeus.store.sql.database import Database, Transaction, TransactionMode
from zeus.store.sql.rows import insert
from zeus.store.tokens import Scope

SIZES, LENGTHS = (10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000, 10_000, 100_000)
WRITERS = (1, 4, 16)
TEMPLATES, LONG_EVERY = 50, 500  # jobs that get a past of their own; one in 500 jobs has a long one
TABLES = {  # each with the column that names the job
    **{"zeus_jobs": "id", "zeus_revisions": "job_id", "zeus_trials": "job_id", "zeus_events": "job_id"},
    **{"zeus_marks": "job_id", "zeus_asks": "job_id", "zeus_profiles": "job"},
}
HERE = Gpus("V100", 1, 250.0)
BATCH_SIZES = (8, 16, 32, 64, 128, 256)
HOT, LONG_JOB = "hot", "long"
AT_ONCE = 2_000  # jobs copied in one transaction


# ---------------------------------------------------------------------- the past


def spec_of(name: str) -> JobSpec:
    return JobSpec(
        job_id=name,
        job_id_prefix=name,
        batch_sizes=BATCH_SIZES,
        default_batch_size=64,
        target_metric=0.84,
        max_epochs=20,
    )


def outcome(rng: random.Random, batch_size: int) -> Outcome:
    """What a training of a few epochs tells, with its steps by power limit and its epochs one by one."""
    epochs = rng.randint(3, 5)
    watts = 200.0 - abs(batch_size - 64) / 8
    seconds = [rng.uniform(95.0, 105.0) * (64 / batch_size) ** 0.3 for _ in range(epochs)]
    uses = [(watts * one, one) for one in seconds]
    steps = [UsageSegment.of(Kind.STEP, 175.0, epoch == 0, 500, *use) for epoch, use in enumerate(uses)]
    curve = tuple(EpochPoint(n, 0.8 + n / 100, *use, 175.0) for n, use in enumerate(uses, 1))
    return Outcome(
        ending=Ending.CONVERGED,
        joules=sum(joules for joules, _ in uses),
        seconds=sum(seconds),
        epochs=epochs,
        metric=0.85,
        stretches=(steps[0], sum(steps[2:], steps[1])),
        curve=curve,
        found_watts=250.0,
        set_limits=True,
    )


def recur(store: Store, name: str, recurrences: int, rng: random.Random) -> None:
    """Give a job a past, as clients of a service do: with keys that make asks repeatable."""
    store.register(spec_of(name))
    states = PolicyStateCache()
    for _ in range(recurrences):
        trial = store.ask(name, Request(gpus=HERE), states.decide, key=uuid4().hex)
        key = ProfileKey(name, trial.batch_size, HERE.kind, HERE.count)
        if store.get_profile(key) is None:
            limits = tuple(float(watts) for watts in range(250, 75, -25))
            slices = tuple(LimitSlice(one, 40, 8.0 * (250 / one) ** 0.3, 7.6 * one) for one in limits)
            store.put_profile(key, PowerProfile(slices, limits))
            store.profiled(name, trial.batch_size, HERE, joules=17500.0, seconds=100.0)
        told = outcome(rng, trial.batch_size)
        store.renew(name, trial.number, replace(told, ending=Ending.LOST, epochs=2))
        store.tell(name, trial.number, told)


def name_of(number: int) -> str:
    return f"team-{number % 97:02d}/model-{number:07d}"


def make_templates(url: str, least: int, most: int, long: int) -> None:
    """Give a few jobs a past by real asks and tells."""
    store, rng = open_store(url), random.Random(0)
    for number in range(TEMPLATES):
        recur(store, name_of(number), rng.randint(least, most), rng)
    recur(store, HOT, 35, rng)
    recur(store, LONG_JOB, long, rng)
    store.close()


def fill(url: str, templates: str, jobs: int) -> list[str]:
    """Fill an empty store with this many jobs, and one that all writers will ask for. Returns their names."""
    names, own = [name_of(number) for number in range(jobs)], min(jobs, TEMPLATES)
    long = [LONG_JOB] if jobs > LONG_EVERY else []
    open_store(url).close()
    with closing(sqlite3.connect(templates.removeprefix("sqlite:///"))) as source, opened(url) as target:
        for name in (*names[:own], HOT, *long):
            with target.transaction(TransactionMode.WRITE) as db:
                for table, key in TABLES.items():
                    found = source.execute(f"SELECT * FROM {table} WHERE {key} = ?", (name,))
                    columns = [one[0] for one in found.description]
                    db.run_each(insert(table, columns), [dict(zip(columns, row, strict=True)) for row in found])
        copy_jobs(target, copies_of(names), "sqlite" if url.startswith("sqlite") else "postgres")
    return names


def copies_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """The jobs that are copies, each with the job that it is a copy of."""
    own, has_long = names[:TEMPLATES], len(names) > LONG_EVERY
    return [
        (name, LONG_JOB if has_long and number % LONG_EVERY == 0 else own[number % len(own)])
        for number, name in enumerate(names[TEMPLATES:])
    ]


@contextmanager
def opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def columns_of(db: Transaction, table: str, kind: str) -> list[str]:
    if kind == "sqlite":
        return [str(name) for (name,) in db.rows(f"SELECT name FROM pragma_table_info('{table}')")]
    find = "SELECT column_name FROM information_schema.columns WHERE table_name = :table"
    return [str(name) for (name,) in db.rows(find, table=table)]


def copy_jobs(database: Database, copies: list[tuple[str, str]], kind: str) -> None:
    """Copy every row of some jobs under other names. Each copy is another life, so it gets another generation."""
    life = "lower(hex(randomblob(16)))" if kind == "sqlite" else "md5(CAST(random() AS text))"
    values = {"generation": life, "job": "replace(of.job, copies.source, copies.name)"}
    copies = sorted(copies)
    for first in range(0, len(copies), AT_ONCE):
        rows = [{"name": name, "source": source} for name, source in copies[first : first + AT_ONCE]]
        with database.transaction(TransactionMode.WRITE) as db:
            db.run("CREATE TEMPORARY TABLE copies (name text PRIMARY KEY, source text)")
            db.run_each("INSERT INTO copies VALUES (:name, :source)", rows)
            for table, key in TABLES.items():
                columns = columns_of(db, table, kind)
                found = ["copies.name" if name == key else values.get(name, f"of.{name}") for name in columns]
                put = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(found)}"
                db.run(f"{put} FROM copies JOIN {table} AS of ON of.{key} = copies.source ORDER BY copies.name")
            db.run("DROP TABLE copies")


def lengthen(store: Store, trials: int) -> str:
    """A job with a long past: its first thousand trials are real, and the others repeat them with later numbers."""
    name = f"after-{trials}"
    recur(store, name, min(trials, 1_000), random.Random(0))
    lines = store.export([name])
    real = [row for row in map(json.loads, lines) if row["line"] == "trial"]
    number, sequence = len(real), len(store.log(name).events)
    more = []
    while number < trials:
        row = json.loads(json.dumps(real[number % len(real)]))
        number, sequence = number + 1, sequence + 2
        row["trial"]["ask"].update(number=number, recurrence=number, id=uuid4().hex)
        row["trial"].update(asked=sequence - 1, ended=sequence)
        more.append(json.dumps(row))
    store.forget(name)
    store.import_lines([*lines, *more])
    return name


# ---------------------------------------------------------------------- writers


def pairs_of(url: str, names: Sequence[str], seed: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Ask and tell for some seconds in this process. Returns how long each ask and each tell took, and the CPU time."""
    store, states, rng, asks, tells = (
        open_store(url),
        PolicyStateCache(),
        random.Random(seed),
        list[float](),
        list[float](),
    )
    if len(names) == 1:  # its state is computed once, and then kept
        states.prepare(store, names[0])
    jobs = LocalJobs(store, states=states)
    until, cpu = time.perf_counter() + seconds, time.process_time()
    while (begun := time.perf_counter()) < until:
        name = names[rng.randrange(len(names))]
        job = RecurringJob.find(jobs, name)
        trial = job.ask(HERE, key=uuid4().hex)
        asked = time.perf_counter()
        told = outcome(rng, trial.batch_size)
        telling = time.perf_counter()
        job.tell(trial.number, told)
        asks.append(asked - begun)
        tells.append(time.perf_counter() - telling)
    cpu = time.process_time() - cpu
    store.close()
    return asks, tells, cpu


def _writer(url: str, names: Sequence[str], seed: int, seconds: float, answer: Any) -> None:
    answer.send(pairs_of(url, names, seed, seconds))


def crowd(url: str, names: Sequence[str], writers: int, seconds: float) -> dict[str, Any]:
    """Several writers at once, each a process."""
    fork, links, processes = multiprocessing.get_context("fork"), [], []
    for _ in range(writers):
        here, there = fork.Pipe(duplex=False)
        processes.append(fork.Process(target=_writer, args=(url, names, random.getrandbits(30), seconds, there)))
        processes[-1].start()
        there.close()
        links.append(here)
    found = [link.recv() for link in links]
    for process in processes:
        process.join()
    asks, tells = ([one for some in found for one in some[verb]] for verb in (0, 1))
    return summed(asks, tells, seconds, sum(cpu for _, _, cpu in found))


def summed(asks: list[float], tells: list[float], seconds: float, cpu: float) -> dict[str, Any]:
    times = {"ask": asks, "tell": tells}
    return {
        "cpu_ms_a_pair": round(cpu * 1e3 / max(1, len(tells)), 2),
        "pairs_a_second": round(len(tells) / seconds, 1),
        **{f"{verb}_p50_ms": round(statistics.median(took) * 1e3, 2) for verb, took in times.items()},
        **{f"{verb}_p99_ms": round(percentile(took, 0.99) * 1e3, 2) for verb, took in times.items()},
    }


async def remote_crowd(
    replica: Replica, token: str, names: Sequence[str], writers: int, seconds: float
) -> dict[str, Any]:
    """Several writers at once, each a connection to the service. The CPU time is that of the service."""
    asks, tells, seen = list[float](), list[float](), Seen()
    until = time.perf_counter() + seconds

    async def work() -> None:
        client, rng = Client([replica.port], token, seen), random.Random(random.getrandbits(30))
        while (begun := time.perf_counter()) < until:
            path = f"/api/v1/jobs/{quoted(names[rng.randrange(len(names))])}"
            asked = await client.post(f"{path}/ask", {"gpu_name": HERE.model, "max_watts": HERE.max_watts}, uuid4().hex)
            asks.append(time.perf_counter() - begun)
            told = outcome(rng, asked["decision"]["batch_size"])
            body = {name: getattr(told, name) for name in ("joules", "seconds", "epochs", "metric")}
            begun = time.perf_counter()
            await client.post(f"{path}/trials/{asked['ask']['number']}/tell", {"ending": "converged", **body})
            tells.append(time.perf_counter() - begun)
        client.close()

    begun, cpu = time.perf_counter(), cpu_seconds(replica.pid)
    async with asyncio.TaskGroup() as group:
        for _ in range(writers):
            group.create_task(work())
    return summed(asks, tells, time.perf_counter() - begun, cpu_seconds(replica.pid) - cpu)


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


# ---------------------------------------------------------------------- lists, the service, the disk


def timed(action: Callable[..., object], *arguments: Any, **options: Any) -> float:
    begun = time.perf_counter()
    action(*arguments, **options)
    return time.perf_counter() - begun


def ms(action: Callable[..., object], *arguments: Any) -> float:
    return round(timed(action, *arguments) * 1e3, 1)


def cpu_ms(action: Callable[..., object], *arguments: Any) -> float:
    """The CPU time of this process, which other load on the machine changes little."""
    begun = time.process_time()
    action(*arguments)
    return round((time.process_time() - begun) * 1e3, 2)


def get(port: int, token: str, path: str, patience: float) -> dict[str, Any]:
    """How long a GET takes, and how many bytes it answers."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {token}"})
    begun = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=patience) as answer:
            size = len(answer.read())
    except (TimeoutError, urllib.error.URLError) as wrong:
        return {"failed": f"{wrong} after {time.perf_counter() - begun:.1f} s"}
    return {"ms": round((time.perf_counter() - begun) * 1e3, 1), "bytes": size}


def group(leader: int) -> Iterator[Path]:
    """The folders in /proc of all processes of a group."""
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and os.getpgid(int(folder.name)) == leader:
                yield folder


def cpu_seconds(leader: int) -> float:
    """The CPU time that the processes of a group have used."""
    ticks = 0
    for folder in group(leader):
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def megabytes(leader: int) -> int:
    """The memory of all processes of a group. A page that several share counts once."""
    lines = list[str]()
    for folder in group(leader):
        with suppress(OSError):  # it has just ended
            lines += (folder / "smaps_rollup").read_text().splitlines()
    return round(sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024)


def disk_bytes(url: str) -> int:
    size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    with opened(url) as database, database.transaction(TransactionMode.READ) as db:
        return int(db.row(size if url.startswith("sqlite") else "SELECT pg_database_size(current_database())")[0])


def listed(url: str, patience: float) -> float | str:
    """How long `zeus jobs list --json` takes."""
    command = [sys.executable, "-m", "zeus.cli", "jobs", "list", "--json", "--store", url]
    try:
        return round(timed(subprocess.run, command, check=True, stdout=subprocess.DEVNULL, timeout=patience), 2)
    except subprocess.TimeoutExpired:
        return f"more than {patience:g} s"


@contextmanager
def served(url: str, folder: Path) -> Iterator[tuple[Replica, str, float]]:
    """The service over this store, a token for it, and how long it took to start."""
    store = open_store(url)
    kept, secret = new("scale", Scope.ADMIN, utc(time.time()))
    store.tokens.add(kept)
    store.close()
    begun = time.perf_counter()
    replica = Replica(url, folder / "service.log")
    try:
        asyncio.run(replica.answers())
        yield replica, secret, time.perf_counter() - begun
    finally:
        replica.end(signal.SIGTERM)


def measured_service(url: str, names: Sequence[str], folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with served(url, folder) as (replica, token, start):
        port, leader = replica.port, replica.pid
        found["start_s"], found["empty_mb"] = round(start, 2), megabytes(leader)
        paths = ("/readyz", "/api/v1/jobs?limit=50", "/api/v1/jobs?limit=50&q=model-0000001", "/api/v1/pulse")
        for path in (*paths, "/api/v1/summary", "/metrics", "/api/v1/summary"):
            found.setdefault(path, []).append(get(port, token, path, options.patience))
            if "failed" in found[path][-1]:  # it may still be busy with it
                break
        found["lists_mb"] = megabytes(leader)
    with served(url, folder) as (replica, token, _):
        for kind, some in (("spread", names), ("hot", [HOT])):
            for writers in options.writers:
                went = asyncio.run(remote_crowd(replica, token, some, writers, options.seconds))
                found[f"{kind} {writers}"] = went
                print(f"  service, {kind:6} {writers:2} writers: {went}", flush=True)
        found["asks_mb"] = megabytes(replica.pid)
    return found


def measure(url: str, templates: str, jobs: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about a store of this many jobs."""
    found: dict[str, Any] = {"jobs": jobs}
    names: list[str] = []
    found["fill_s"] = round(timed(lambda: names.extend(fill(url, templates, jobs))), 1)
    found["disk_bytes"] = disk_bytes(url)
    opened: list[Store] = []
    found["open_ms"] = ms(lambda: opened.append(open_store(url)))
    store = opened[0]
    sample = random.Random(1).sample(names, min(jobs, 20))
    found["trials"] = store.count(names[0])
    found["pulse_ms"] = ms(store.pulse)
    found["brief_cpu_ms"] = statistics.median(cpu_ms(digest_of, store, name) for name in sample)
    found["unknown_ms"] = ms(unknown, store)
    copy_digests(store, names)
    found["list_ms"], found["totals_ms"] = ms(LocalJobs(store).briefs), ms(Overview(store).summary)
    store.close()
    print(f"  {found}", flush=True)
    found["list_s"] = listed(url, options.patience)
    print(f"  zeus jobs list: {found['list_s']}", flush=True)
    for kind, some in (("spread", names), ("hot", [HOT])):
        for writers in options.writers:
            found[f"{kind} {writers}"] = crowd(url, some, writers, options.seconds)
            print(f"  {kind:6} {writers:2} writers: {found[f'{kind} {writers}']}", flush=True)
    found["service"] = measured_service(url, names, folder, options)
    for name, value in found["service"].items():
        print(f"  service {name}: {value}", flush=True)
    return found


def copy_digests(store: Store, names: Sequence[str]) -> None:
    """Give each job the digest that whoever told its last trial would have left: that of the job it is a copy of."""
    digests = Digests(store)
    for name in [*names[:TEMPLATES], HOT, *([LONG_JOB] if len(names) > LONG_EVERY else [])]:
        digests.refresh(name)
    found, fresh = store.glances(hours=True, weeks=True), dict[str, Digest]()
    for name, template in copies_of(names):
        kept = found[template].digest
        assert kept is not None
        stamp = kept.stamp.removesuffix(found[template].pulse) + found[name].pulse
        fresh[name] = kept._replace(stamp=stamp, brief=kept.brief.replace(template, name))
        if len(fresh) == AT_ONCE:
            store.keep_digests(fresh)
            fresh.clear()
    store.keep_digests(fresh)


def unknown(store: Store) -> None:
    try:
        store.job("team-03/model-000000x")
    except NotKnown:
        return
    raise AssertionError("there is no such job")


def measure_lengths(url: str, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """One job each, by the length of its past. CPU time, in milliseconds."""
    store, rows = open_store(url), []
    for length in lengths:
        name = lengthen(store, length)
        states, rng, asks, tells = PolicyStateCache(), random.Random(2), list[float](), list[float]()
        row: dict[str, Any] = {
            "trials": length,
            "first_ask": cpu_ms(RecurringJob.find(LocalJobs(store, states=states), name).ask, HERE),
        }
        row["ask_with_snapshot"] = cpu_ms(LocalJobs(store).ask, name, HERE)
        job = RecurringJob.find(LocalJobs(store, states=states), name)
        for _ in range(50):
            asks.append(cpu_ms(job.ask, HERE))
            trial = store.trials(name, after=length, most=1000)[-1].trial
            tells.append(cpu_ms(job.tell, trial.number, outcome(rng, trial.batch_size)))
        row["ask"], row["tell"] = statistics.median(asks), statistics.median(tells)
        row["knowledge"] = cpu_ms(LocalJobs(store).knowledge, name, trial)
        row["brief"] = cpu_ms(digest_of, store, name)
        row["page_mb"] = round(len(json.dumps(full(report(store, name, states)))) / 1e6, 2)
        rows.append(row)
        print(f"  {row}", flush=True)
    store.close()
    return rows


# ---------------------------------------------------------------------- a model of larger stores

LAWS: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    "CPU of a pair on random jobs, ms": ("log10", lambda row: float(row["spread 1"]["cpu_ms_a_pair"])),
    "CPU of a pair on one job, ms": ("log10", lambda row: float(row["hot 1"]["cpu_ms_a_pair"])),
    "pulse of all jobs, ms": ("jobs", lambda row: float(row["pulse_ms"])),
    "disk, MB": ("jobs", lambda row: row["disk_bytes"] / 1e6),
}


def model(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Fit a line through what was measured, over the logarithm of the jobs or over the jobs, and follow it to 10^6."""
    found = {}
    for name, (over, value) in LAWS.items():
        x = [math.log10(row["jobs"]) if over == "log10" else row["jobs"] for row in rows]
        slope, base = statistics.linear_regression(x, [value(row) for row in rows])
        ahead = base + slope * (6 if over == "log10" else 1e6)
        shape = f"{base:.3g} + {slope:.3g} * log10(jobs)" if over == "log10" else f"{base:.3g} + {slope:.3g} * jobs"
        span = f"{rows[0]['jobs']} to {rows[-1]['jobs']} jobs"
        found[name] = f"{shape}, fitted to {span}; at 10^6 jobs the model says {ahead:.4g}"
    return found


# ---------------------------------------------------------------------- the command


@contextmanager
def places(kind: str) -> Iterator[tuple[Callable[[], str], Path]]:
    """A function that makes an empty store, and a folder."""
    if kind == "postgres":
        with PostgresServer.start() as server:
            yield server.new_database, server.folder
        return
    folder = Path(tempfile.mkdtemp(prefix="zeus-scale-"))
    try:
        yield lambda: f"sqlite:///{folder}/{uuid4().hex}.db", folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, nargs="*", default=SIZES)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--writers", type=int, nargs="+", default=WRITERS)
    parser.add_argument("--recurrences", type=int, nargs=2, default=(20, 50), help="least and most of a job")
    parser.add_argument("--long", type=int, default=2_000, help="recurrences of one job in 500")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each group of writers")
    parser.add_argument("--patience", type=float, default=120.0, help="seconds after which a list is given up")
    parser.add_argument("--quick", action="store_true", help="up to 1,000 jobs and trials, a few minutes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.quick:
        options.jobs = [jobs for jobs in options.jobs if jobs <= 1_000]
        options.lengths, options.seconds = [one for one in options.lengths if one <= 1_000], 2.0
        options.long = min(options.long, 200)
    found: dict[str, Any] = {}
    with places("sqlite") as (new_store, _):
        templates = new_store()
        took = timed(make_templates, templates, *options.recurrences, options.long)
        print(f"a past for {TEMPLATES} jobs: {took:.0f} s", flush=True)
        for kind in ("sqlite", "postgres"):
            if options.only in (None, kind):
                found[kind] = measure_kind(kind, templates, options)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


def measure_kind(kind: str, templates: str, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"jobs": [], "lengths": []}
    for jobs in options.jobs:
        with places(kind) as (new_store, folder):
            print(f"{kind}, {jobs} jobs", flush=True)
            found["jobs"].append(measure(new_store(), templates, jobs, folder, options))
    if len(found["jobs"]) > 1 and 1 in options.writers:  # the model is of one writer
        found["model"] = model(found["jobs"])
        for name, law in found["model"].items():
            print(f"  model of {name}: {law}", flush=True)
    if kind == "sqlite" and options.lengths:
        with places(kind) as (new_store, _):
            print("sqlite, by the length of one job's past", flush=True)
            found["lengths"] = measure_lengths(new_store(), options.lengths)
    return found


if __name__ == "__main__":
    sys.exit(main())
