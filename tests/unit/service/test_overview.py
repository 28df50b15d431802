"""The overview of many jobs: what is cached shows the same as what is computed again."""

from __future__ import annotations

from typing import Any

import pytest

from support.waiting import eventually
from zeus.client.api import TrialRef
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.service import overview
from zeus.service.overview import Overview
from zeus.store import MemoryStore, Store

HERE = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)
JOBS = ("asr", "lm", "vision")


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    for name in JOBS:
        spec = JobSpec(job_id=name, job_id_prefix=name, batch_sizes=(8, 16, 32), default_batch_size=16)
        RecurringJob.register(LocalJobs(store), spec)
    return store


def so_far(joules: float) -> Outcome:
    return Outcome(ending=Ending.LOST, joules=joules, seconds=joules / 100, epochs=1)


class Clock:
    """Shows a time that the test sets, and adds `step` to it at each look."""

    def __init__(self, step: float = 0.0) -> None:
        self.seconds, self.step = 0.0, step

    def __call__(self) -> float:
        self.seconds += self.step
        return self.seconds


class Reads(MemoryStore):
    """Counts how often all jobs are read."""

    reads = 0

    def glances(self, *arguments: Any, **options: Any) -> Any:
        self.reads += 1
        return super().glances(*arguments, **options)


def test_what_a_running_trial_reports_is_shown_although_its_pulse_stays(store: Store) -> None:
    shown, job = Overview(store), RecurringJob.find(LocalJobs(store), "asr")
    number = job.ask(HERE).number
    for joules in (100.0, 900.0):
        job.renew(number, so_far(joules))
        (row,) = shown.briefs(["asr"])
        assert (row["joules"], row["running"][0]["joules"]) == (joules, joules)
        assert shown.summary()["joules"] == joules


def test_totals_are_added_up_over_several_requests(store: Store) -> None:
    many = MemoryStore()
    many.import_lines(store.export())
    shown = Overview(many, clock=Clock(step=5.0))  # each look at this clock takes longer than a request may
    assert [shown.summary()["uncounted"] for _ in JOBS] == [2, 1, 0]


def test_totals_of_many_jobs_are_read_again_after_five_seconds(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(overview, "MANY", 2)
    clock, many = Clock(), Reads()
    many.import_lines(store.export())
    shown = Overview(many, clock=clock)
    for at, reads in ((0.0, 1), (2.4, 1), (5.0, 2), (7.4, 2), (12.4, 3)):
        clock.seconds = at
        shown.summary()
        assert many.reads == reads


def test_totals_of_many_jobs_are_read_beside_the_requests_before_they_are_too_old(
    monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    monkeypatch.setattr(overview, "MANY", 2)
    clock, many = Clock(), Reads()
    many.import_lines(store.export())
    shown = Overview(many, clock=clock)
    shown.summary()
    number = LocalJobs(many).ask("asr", HERE)[0].number
    LocalJobs(many).tell(TrialRef("asr", number), DONE)
    clock.seconds = 2.5
    assert shown.summary()["trials"] == 0, "this request does not wait"
    eventually(lambda: shown.summary()["trials"] == 1)
    clock.seconds = 7.4  # five seconds after the second reading began
    assert shown.summary()["trials"] == 1


def test_totals_of_few_jobs_are_those_of_this_moment(store: Store) -> None:
    shown, job = Overview(store), RecurringJob.find(LocalJobs(store), "asr")
    for trials in (1, 2, 3):
        job.tell(job.ask(HERE).number, DONE)
        assert (shown.summary()["trials"], shown.summary()["joules"]) == (trials, 1000.0 * trials)
