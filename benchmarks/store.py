"""Measures an ask and a tell after 100 and 10,000 trials, relative to a bare insert and commit in the same database.

    python benchmarks/store.py [--only sqlite|postgres] [--policy structured|paper] [--check]

The process keeps the policy state, as in real use. PostgreSQL is started for this test with its default durability.
SQLite has the settings of the store (write-ahead log, synchronous=NORMAL), also for the bare insert. That is one row
with the columns of a trial, inserted by the driver in a transaction of its own. All take turns, so that other load hits
all alike. With --check the exit code is 1 if an ask or a tell costs more than 8 bare inserts, or an ask after
10,000 trials more than two after 100.
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

from zeus.client.policy_states import PolicyStateCache
from zeus.job import Ask, Ending, Gpus, JobSpec, Outcome, replace
from zeus.store import MemoryStore, Request, Store, open_store
from zeus.store.api import Log, LogPoint, utc
from zeus.store.sql.database import Database, TransactionMode
from zeus.store.sql.rows import TrialRow, insert

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # for a server of one's own

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32, 64, 128), default_batch_size=32)
HERE = Request(gpus=Gpus("V100", 1, 250.0))
LENGTHS = (100, 10_000)
ROUNDS = 300
MOST_BARE, MOST_GROWTH = 8.0, 2.0  # an ask runs nine statements


def microseconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return (time.perf_counter() - begun) * 1e6


def told(rng: random.Random) -> Outcome:
    return Outcome(ending=Ending.CONVERGED, joules=rng.uniform(90.0, 110.0), seconds=1.0, epochs=3)


def past(spec: JobSpec, trials: int) -> list[str]:
    """The lines of a job with this many trials."""
    store, states, rng = MemoryStore(), PolicyStateCache(), random.Random(0)
    store.register(spec)
    for _ in range(trials):
        store.tell(spec.id, store.ask(spec.id, HERE, states.decide).number, told(rng))
    return store.export()


class Recurring:
    """A job in a store, asked and told in turn. The process keeps its policy state."""

    def __init__(self, store: Store, policy: str, trials: int) -> None:
        self.spec, self.trials = replace(SPEC, job_id=f"after-{trials}", policy=policy), trials
        self.store, self.states, self.rng, self.open = store, PolicyStateCache(), random.Random(1), 0
        store.import_lines(past(self.spec, trials))
        self.job = store.job(self.spec.id)
        self.cold = microseconds(lambda: self.states.state(self.job, self.log))

    def log(self, since: LogPoint) -> Log:
        return self.store.log(self.spec.id, since)

    def ask(self) -> None:
        self.open = self.store.ask(self.spec.id, HERE, self.states.decide).number

    def tell(self) -> None:
        self.store.tell(self.spec.id, self.open, told(self.rng))

    def decide(self) -> None:
        """Decide with an up-to-date policy state, without the store."""
        ask = Ask(number=self.open + 1, recurrence=self.open + 1, gpus=Gpus("V100", 1, 250.0), eta=0.5)
        self.states.decide(self.job, ask, lambda since: Log(since, [], since))


class Bare:
    """A table for bare inserts, next to those of the store, without any index but its key."""

    def __init__(self, url: str) -> None:
        self.database, now = Database(url), utc(time.time())
        with self.database.transaction(TransactionMode.WRITE) as db:
            db.run("CREATE TABLE bare AS SELECT * FROM zeus_trials WHERE number < 0")
            db.run("CREATE UNIQUE INDEX bare_key ON bare (job_id, number)")
        self.row = {
            **{"job_id": SPEC.id, "number": 0, "recurrence": 1, "sequence": 1, "trial": "x" * 400},
            **{"so_far": None, "origin": None, "asked_at": now, "changed_at": now, "leased_until": now},
        }

    def insert(self) -> None:
        self.row["number"] += 1
        with self.database.transaction(TransactionMode.WRITE) as db:
            db.run(insert("bare", TrialRow._fields), **self.row)


def run(name: str, url: str, policy: str) -> bool:
    """Print a table and return whether all is within bounds."""
    store, bare = open_store(url), Bare(url)
    jobs = [Recurring(store, policy, trials) for trials in LENGTHS]
    took: dict[object, list[float]] = {}
    for _ in range(ROUNDS):
        for verb in [one for job in jobs for one in (bare.insert, job.ask, bare.insert, job.tell)]:
            took.setdefault(verb, []).append(microseconds(verb))
    us = {verb: statistics.median(times) for verb, times in took.items()}
    decide = statistics.median(microseconds(jobs[0].decide) for _ in range(ROUNDS))
    least = us[bare.insert]
    print(f"{name}, policy {policy}, median of {ROUNDS}")
    print(f"  a bare insert and commit {least:.0f} us, a decision alone {decide:.0f} us")
    for job in jobs:
        ask, tell = us[job.ask], us[job.tell]
        print(
            f"  after {job.trials:6} trials: ask {ask:5.0f} us ({ask / least:.2f}x), tell {tell:5.0f} us"
            f" ({tell / least:.2f}x); a new process folds them in {job.cold / 1e3:.0f} ms"
        )
    growth = us[jobs[-1].ask] / us[jobs[0].ask]
    print(f"  an ask after {LENGTHS[-1]} trials costs {growth:.2f}x one after {LENGTHS[0]}")
    store.close()
    bare.database.close()
    return growth <= MOST_GROWTH and all(max(us[job.ask], us[job.tell]) <= MOST_BARE * least for job in jobs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--policy", default=SPEC.policy)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    sound = True
    if options.only != "postgres":
        with tempfile.TemporaryDirectory() as folder:
            sound &= run("SQLite", f"sqlite:///{folder}/zeus.db", options.policy)
    if options.only != "sqlite":
        from support.postgres import PostgresServer

        try:
            server = PostgresServer.start()
        except LookupError as missing:
            print(f"PostgreSQL: {missing}")
            return 1
        with server:
            sound &= run("PostgreSQL", server.new_database(), options.policy)
    return int(options.check and not sound)


if __name__ == "__main__":
    sys.exit(main())
