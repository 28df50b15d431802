"""A process that asks and tells on one job: `store_worker.py URL JOB TIMES`; prints what it has done."""

from __future__ import annotations

import sys

from zeus.job import Ask, Decision, Ending, Outcome, Phase
from zeus.store import Job, Request, open_store
from zeus.store.api import Facts

CONVERGED = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=2.0, epochs=3, metric=0.9)


def first_size(job: Job, ask: Ask, facts: Facts) -> Decision:
    """Says in its reason how many events it saw, which must be all that came before."""
    return Decision(job.spec.batch_sizes[0], Phase.DEFAULT, str(len(facts(0))))


def main(url: str, job_id: str, times: str) -> None:
    store = open_store(url)
    for _ in range(int(times)):
        trial = store.ask(job_id, Request(max_watts=250.0), first_size)
        print(f"asked {trial.number}", flush=True)
        store.tell(job_id, trial.number, CONVERGED)
        print(f"told {trial.number}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
