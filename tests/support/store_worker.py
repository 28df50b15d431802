"""Processes that ask and tell on one job, each over its own connection: `store_worker.py URL JOB TIMES PROCESSES`.

They start together and print each step once it is done: `PID asked NUMBER`, `PID told NUMBER`, or `PID failed WHY`.
The parent imports the modules for all of them, and waits for them once its standard input is closed.
"""

from __future__ import annotations

import os
import sys

from zeus.job import Ask, Decision, Ending, Gpus, Outcome, Phase
from zeus.store import Job, Request, open_store
from zeus.store.api import START, Facts

CONVERGED = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=2.0, epochs=3, metric=0.9)
WALL = 1_700_000_000.0  # at which the tests' virtual clocks begin


class Counting:
    """Decides on the first size, and says in its reason how many events it saw: that must be all that came before."""

    def __init__(self) -> None:
        self.seen = START

    def __call__(self, job: Job, ask: Ask, facts: Facts) -> Decision:
        log = facts(self.seen)
        numbers = [event.sequence for event in log.events]
        assert log.begin == self.seen and numbers == list(range(log.begin.sequence + 1, log.end.sequence + 1))
        self.seen = log.end
        return Decision(job.spec.batch_sizes[0], Phase.DEFAULT, str(self.seen.sequence))


def first_size(job: Job, ask: Ask, facts: Facts) -> Decision:
    """The same from the start."""
    return Counting()(job, ask, facts)


def work(url: str, job_id: str, times: int) -> None:
    def say(text: str) -> None:
        os.write(1, f"{os.getpid()} {text}\n".encode())  # all at once, so that no two mix

    try:
        store, decide = open_store(url, wall=lambda: WALL), Counting()
        for _ in range(times):
            trial = store.ask(job_id, Request(gpus=Gpus(max_watts=250.0)), decide)
            say(f"asked {trial.number}")
            store.tell(job_id, trial.number, CONVERGED)
            say(f"told {trial.number}")
    except BaseException as wrong:
        say(f"failed {wrong!r}")


def main(url: str, job_id: str, times: str, processes: str) -> None:
    open_store(url).close()  # whatever is imported for it is imported once
    waiting, gate = os.pipe()
    for _ in range(int(processes)):
        if os.fork() == 0:
            os.close(gate)
            os.read(waiting, 1)
            work(url, job_id, int(times))
            os._exit(0)
    os.close(gate)
    os.close(1)  # read to its end, it has told all that the children had to say
    sys.stdin.read()
    for _ in range(int(processes)):
        os.wait()
    os._exit(0)  # nothing is left to flush, and nowhere to


if __name__ == "__main__":
    main(*sys.argv[1:])
