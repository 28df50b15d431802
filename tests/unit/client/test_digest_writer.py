"""Who changes a job has its digest computed, but spends little time on it and never fails because of it."""

from __future__ import annotations

import threading

import pytest

from support.waiting import eventually
from zeus.client.api import TrialRef
from zeus.client.digest_writer import CHEAP_TRIALS, REST, DigestsAtOnce, DigestThread
from zeus.client.local import LocalJobs
from zeus.client.report import Digests
from zeus.errors import NotKnown, StoreError
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.store import MemoryStore
from zeus.tariff.rates import Prices

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16)
HERE = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)


class Work:
    """Takes two seconds for each digest, on a clock of its own."""

    def __init__(self, *fails: Exception) -> None:
        self.seconds, self.done, self.fails = 0.0, list[str](), list(fails)

    def __call__(self, job_id: str) -> None:
        self.seconds += 2.0
        self.done.append(job_id)
        if self.fails:
            raise self.fails.pop()

    def clock(self) -> float:
        return self.seconds


def test_a_process_with_a_training_spends_a_small_share_of_its_time_on_digests() -> None:
    work = Work()
    writer = DigestsAtOnce(work, work.clock)
    for _ in range(1000):
        writer.changed("asr", 10)
        work.seconds += 1.0
    assert work.seconds / 2 / (REST + 5) < len(work.done) <= work.seconds / 2 / REST + 1


def test_a_process_with_a_training_leaves_long_jobs_to_readers() -> None:
    work = Work()
    DigestsAtOnce(work, work.clock).changed("asr", CHEAP_TRIALS + 1)
    assert work.done == []


@pytest.mark.parametrize("wrong", [StoreError("away"), NotKnown("removed"), ZeroDivisionError()])
def test_a_digest_that_fails_fails_alone(wrong: Exception) -> None:
    work = Work(wrong)
    writer = DigestsAtOnce(work, work.clock)
    writer.changed("asr")
    work.seconds += 1000.0
    writer.changed("asr")
    assert work.done == ["asr", "asr"]


def test_a_thread_computes_each_job_that_changed_and_ends_with_its_service() -> None:
    done, turn = list[str](), threading.Event()

    def refresh(job_id: str) -> None:
        turn.wait()
        done.append(job_id)

    writer = DigestThread(refresh)
    for name in ("asr", "lm", "asr"):
        writer.changed(name)
    writer.start()
    writer.changed("vision")
    turn.set()
    eventually(lambda: len(done) == 3)
    writer.changed("asr")
    eventually(lambda: len(done) == 4)
    writer.close()
    writer.changed("asr")
    assert done == ["asr", "lm", "vision", "asr"]


def test_after_a_tell_a_list_has_nothing_to_compute() -> None:
    store = MemoryStore()
    first, second = LocalJobs(store), LocalJobs(store)  # as two processes
    first.register(SPEC)
    trial, _ = first.ask("asr", HERE)
    second.tell(TrialRef("asr", trial.number, trial.id), DONE)
    found = Digests(store).totals(Prices(), 0.0)
    assert (found.rows["asr"].trials, found.rows["asr"].joules, found.uncounted) == (1, 1000.0, 0)
