"""Processes that ask, renew and tell on one job until they are killed.

`store_crowd.py URL GATE ACKS LEASE SEED WORKERS` starts so many. What a verb has done is written to the file ACKS once
it returns, a line each:

    worker PID · asked NUMBER ID · told NUMBER ID · refused NUMBER ID · failed WHY

They end when their standard input does. While there is a file GATE.closed nobody begins a verb; whoever locks the file
GATE then waits for those that have begun.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import sys
import time
from pathlib import Path

from zeus.errors import AlreadyDone, NotKnown, StoreError
from zeus.job import Ask, Decision, Ending, Gpus, JobSpec, Outcome, Phase, Trial
from zeus.store import Job, Request, Store, open_store
from zeus.store.api import Facts

SPEC = JobSpec(job_id="crowd", job_id_prefix="crowd", batch_sizes=(8, 16), default_batch_size=16, mab_seed=1)
HERE = Request(gpus=Gpus("V100", 1, 250.0))
PAUSE_SECONDS = 0.02  # more trials would only make each reset, which saves all of them, slower
OPEN_AT_ONCE = 4


def joules_of(trial_id: str) -> float:
    """What a trial says it used: nobody but itself can have said so."""
    return 1.0 + int(trial_id[:8], 16)


def outcome_of(trial_id: str, ending: Ending = Ending.CONVERGED) -> Outcome:
    return Outcome(ending=ending, joules=joules_of(trial_id), seconds=1.0, epochs=1)


def decide(job: Job, ask: Ask, facts: Facts) -> Decision:
    return Decision(16, Phase.DEFAULT, "16")


class Worker:
    """One process: a few trials of its own at a time, and those that it has told of."""

    def __init__(self, url: str, acks: Path, lease: float, seed: int) -> None:
        self._file = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._dice = random.Random(seed)
        self._lease = lease
        self._open: list[Trial] = []
        self._told: list[Trial] = []
        self._say(f"worker {os.getpid()}")
        self._store: Store = open_store(url)

    def _say(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())  # all at once, so that no two mix

    def step(self) -> None:
        """One verb."""
        try:
            self._verb(self._dice.random())
        except (NotKnown, AlreadyDone, StoreError):
            pass  # the job was removed for a moment, or its store is busy
        except BaseException as wrong:
            self._say(f"failed {wrong!r}")

    def _verb(self, chance: float) -> None:
        if len(self._open) < OPEN_AT_ONCE and chance < 0.4:
            lease = self._dice.choice((self._lease, 600.0))
            trial = self._store.ask("crowd", HERE, decide, lease=lease)
            self._say(f"asked {trial.number} {trial.id}")
            self._open.append(trial)
        elif self._open and chance < 0.6:
            trial = self._dice.choice(self._open)
            self._store.renew("crowd", trial.number, outcome_of(trial.id, Ending.LOST), trial_id=trial.id)
        elif self._open and chance < 0.9:
            trial = self._open.pop(self._dice.randrange(len(self._open)))
            self._tell(trial)
            self._told = [*self._told[-9:], trial]
        elif self._told:
            self._tell(self._dice.choice(self._told))

    def _tell(self, trial: Trial) -> None:
        try:
            self._store.tell("crowd", trial.number, outcome_of(trial.id), trial_id=trial.id)
        except NotKnown:
            self._say(f"refused {trial.number} {trial.id}")
        else:
            self._say(f"told {trial.number} {trial.id}")


def work(worker: Worker, gate: Path) -> None:
    closed = gate.with_name(f"{gate.name}.closed")
    with gate.open() as door:
        while not select.select([0], [], [], 0)[0]:  # nothing is ever written there: it can be read at its end
            if closed.exists():
                time.sleep(0.005)
                continue
            fcntl.flock(door, fcntl.LOCK_SH)
            worker.step()
            fcntl.flock(door, fcntl.LOCK_UN)
            time.sleep(PAUSE_SECONDS)


def main(url: str, gate: str, acks: str, lease: str, seed: str, workers: str) -> None:
    open_store(url).close()  # whatever is imported for it is imported once
    for number in range(int(workers)):
        if os.fork() == 0:
            worker = Worker(url, Path(acks), float(lease), int(seed) + number)
            work(worker, Path(gate))
            os._exit(0)
    sys.stdin.read()
    for _ in range(int(workers)):
        os.wait()  # not sooner: the number of one that was killed must not go to another process
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
