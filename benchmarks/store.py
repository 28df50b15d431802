"""What an ask and a tell cost after 100 and after 10,000 trials, against a bare insert and commit in the same file.

python benchmarks/store.py
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from zeus.job import Ask, Decision, Ending, JobSpec, Outcome
from zeus.optimizer.batch_size.policy import find_policy
from zeus.store import Job, Request, open_store
from zeus.store.api import Facts
from zeus.store.database import connect

SIZES = (8, 16, 32, 64, 128)
ROUNDS = 200


class Folded:
    """The paper's policy over a fold that is kept and goes on where it was."""

    def __init__(self) -> None:
        self.state: Any = None
        self.seen = 0
        self.took: list[float] = []  # seconds of folding and deciding alone

    def __call__(self, job: Job, ask: Ask, facts: Facts) -> Decision:
        policy, events = find_policy(job.spec.policy, job.policy_version), facts(self.seen)
        begun = time.perf_counter()
        if self.state is None:
            self.state = policy.start(job.spec)
        for event in events:
            self.state, self.seen = policy.observe(self.state, event), event.sequence
        decision = policy.decide(self.state, random.Random(f"{job.spec.mab_seed}:{ask.number}"), ask)
        self.took.append(time.perf_counter() - begun)
        return decision


def median_us(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    took = []
    for _ in range(rounds):
        begun = time.perf_counter()
        action()
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/zeus.db"
        store, decide, rng = open_store(url), Folded(), random.Random(0)
        spec = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=SIZES, default_batch_size=32)
        store.register(spec)
        engine = connect(url)
        with engine.begin() as db:
            db.execute(sa.text("CREATE TABLE bare (id INTEGER PRIMARY KEY, text TEXT)"))
        table = sa.table("bare", sa.column("text"))

        def bare() -> None:
            with engine.begin() as db:
                db.execute(sa.insert(table).values(text="x" * 400))

        opened: list[int] = []

        def ask() -> None:
            opened.append(store.ask("asr", Request(max_watts=250.0), decide).number)

        def tell() -> None:
            cost = rng.uniform(90.0, 110.0)
            store.tell("asr", opened.pop(), Outcome(ending=Ending.CONVERGED, joules=cost, seconds=1.0, epochs=3))

        def both() -> tuple[float, float]:
            rows = []
            for _ in range(ROUNDS):
                rows.append((median_us(ask, 1), median_us(tell, 1)))
            return statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows)

        plain = median_us(bare)
        print(f"bare insert and commit          {plain:8.0f} us")
        done = 0
        for trials in (100, 10_000):
            while done < trials:
                ask()
                tell()
                done += 1
            asked, told = both()
            done += ROUNDS
            print(f"after {trials:6} trials: ask        {asked:8.0f} us  {asked / plain:.1f}x")
            share = statistics.median(decide.took[-ROUNDS:]) * 1e6
            print(f"                     of which to decide {share:5.0f} us")
            print(f"                     tell       {told:8.0f} us  {told / plain:.1f}x")
        begun = time.perf_counter()
        Folded()(
            store.job("asr"), Ask(number=1, recurrence=1, max_watts=250.0), lambda since: store.facts("asr", since)
        )
        print(f"cold fold of {done} trials      {(time.perf_counter() - begun) * 1e3:8.0f} ms")
        store.close()
        engine.dispose()


if __name__ == "__main__":
    main()
