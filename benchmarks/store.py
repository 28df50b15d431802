"""What an ask and a tell cost after 100 and after 10,000 trials, against a bare insert and commit of the same database.

    python benchmarks/store.py [--only sqlite|postgres] [--check]

With the paper's policy, its fold kept by the process as in use. PostgreSQL is started for the purpose, with the
durability it has by default; SQLite is as the store sets it (write-ahead log, synchronous=NORMAL), also for the bare
insert, which is one row with a trial's columns: `execute(insert(table), row)` within `engine.begin()`. All take turns,
so that a busy moment of the machine is none's alone. With --check exit 1 where an ask
or a tell is above 3 bare inserts, or an ask after 10,000 trials above twice one after 100.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from zeus.job import Ask, Ending, JobSpec, Outcome
from zeus.optimizer.batch_size.local import Folds
from zeus.store import Request, Store, open_store
from zeus.store.api import utc
from zeus.store.tables import TRIALS

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for a server of one's own

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32, 64, 128), default_batch_size=32)
HERE = Request(max_watts=250.0, gpu_model="V100")
LENGTHS = (100, 10_000)
ROUNDS = 400
MOST_BARE, MOST_GROWTH = 3.0, 2.0

metadata = sa.MetaData()
BARE = sa.Table(
    "bare", metadata, *(sa.Column(of.name, of.type, primary_key=of.primary_key) for of in TRIALS.columns)
)  # the columns of a trial, and no index but its key


def microseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1e6


class Bench:
    """One store with its history so far, and a table beside it."""

    def __init__(self, url: str) -> None:
        self.store: Store = open_store(url)
        self.store.register(SPEC)
        self.engine = sa.create_engine(url)
        if url.startswith("sqlite"):
            sa.event.listen(self.engine, "connect", lambda db, _: db.execute("PRAGMA synchronous=NORMAL"))
        metadata.create_all(self.engine)
        now = utc(time.time())
        self.row = {
            **{"job_id": SPEC.id, "number": 0, "recurrence": 1, "sequence": 1, "trial": "x" * 400, "so_far": None},
            **{"asked_at": now, "changed_at": now, "leased_until": now},
        }
        self.folds, self.rng, self.done, self.open = Folds(), random.Random(0), 0, 0

    def bare(self) -> None:
        self.row["number"] += 1
        with self.engine.begin() as db:
            db.execute(sa.insert(BARE), self.row)

    def ask(self) -> None:
        self.open = self.store.ask(SPEC.id, HERE, self.folds.decide).number

    def tell(self) -> None:
        joules = self.rng.uniform(90.0, 110.0)
        self.store.tell(SPEC.id, self.open, Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=3))
        self.done += 1

    def grow(self, trials: int) -> None:
        while self.done < trials:
            self.ask()
            self.tell()

    def decide(self) -> None:
        """What the policy alone takes, its fold up to date."""
        ask = Ask(number=self.done + 1, recurrence=self.done + 1, max_watts=250.0, gpu_model="V100")
        self.folds.decide(self.job, ask, lambda since: [])

    def measure(self) -> dict[str, float]:
        self.job = self.store.job(SPEC.id)
        verbs: dict[str, Callable[[], Any]] = {name: getattr(self, name) for name in ("bare", "ask", "tell", "decide")}
        took: dict[str, list[float]] = {name: [] for name in verbs}
        for _ in range(ROUNDS):
            for name, verb in verbs.items():
                took[name].append(microseconds(verb))
        return {name: statistics.median(times) for name, times in took.items()}

    def close(self) -> None:
        self.store.close()
        self.engine.dispose()


def run(name: str, url: str) -> bool:
    """Print a table; whether all is within bounds."""
    bench, asks, sound = Bench(url), [], True
    print(f"{name:<10} median us   bare   ask          tell         of an ask, to decide")
    for trials in LENGTHS:
        bench.grow(trials)
        us = bench.measure()
        bare, ask, tell = us["bare"], us["ask"], us["tell"]
        asks.append(ask)
        sound &= max(ask, tell) <= MOST_BARE * bare
        print(
            f"  after {trials:6} trials {bare:5.0f}  {ask:5.0f} ({ask / bare:.2f}x)"
            f"  {tell:5.0f} ({tell / bare:.2f}x)  {us['decide']:5.0f}"
        )
    growth = asks[-1] / asks[0]
    cold = microseconds(lambda: Folds().state(bench.job, lambda since: bench.store.facts(SPEC.id, since)))
    print(f"  an ask after {LENGTHS[-1]} trials costs {growth:.2f}x one after {LENGTHS[0]}")
    print(f"  a process that begins folds {bench.done} trials in {cold / 1e3:.0f} ms")
    bench.close()
    return sound and growth <= MOST_GROWTH


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sound = True
    if options.only != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            sound &= run("SQLite", f"sqlite:///{folder}/zeus.db")
    if options.only != "sqlite":
        from postgres import PostgresServer

        try:
            server = PostgresServer.start()
        except LookupError as missing:
            print(f"PostgreSQL: {missing}")
            return 1
        with server:
            sound &= run("PostgreSQL", server.new_database())
    return int(options.check and not sound)


if __name__ == "__main__":
    sys.exit(main())
