"""The overview of many jobs: what is cached shows the same as what is computed again."""

from __future__ import annotations

import pytest

from zeus.client.folds import Folds
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
    """Shows a time that the test sets."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_what_a_running_trial_reports_is_shown_although_its_pulse_stays(store: Store) -> None:
    shown, job = Overview(store, Folds()), RecurringJob.find(LocalJobs(store), "asr")
    number = job.ask(HERE).number
    for joules in (100.0, 900.0):
        job.renew(number, so_far(joules))
        (row,) = shown.briefs(store.pulse(["asr"]))
        assert (row["joules"], row["running"][0]["joules"]) == (joules, joules)
        assert shown.addends().totals["joules"] == joules


def test_jobs_that_run_are_computed_again_only_after_a_report(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    shown, job, computed = Overview(store, Folds()), RecurringJob.find(LocalJobs(store), "asr"), list[str]()
    make = shown._brief
    monkeypatch.setattr(shown, "_brief", lambda job_id: computed.append(job_id) or make(job_id))
    job.renew(number := job.ask(HERE).number, so_far(100.0))
    for _ in range(3):
        shown.briefs(store.pulse(["asr"]))
        job.renew(number)  # the lease alone
    assert computed == ["asr"]


def test_a_job_that_always_reports_keeps_no_other_out_of_the_totals(store: Store) -> None:
    clock = Clock()

    class Slow(Overview):
        def _brief(self, job_id: str) -> dict[str, object]:
            clock.seconds += 5  # longer than one request computes
            return super()._brief(job_id)

    shown, job = Slow(store, Folds(), clock), RecurringJob.find(LocalJobs(store), "asr")
    number = job.ask(HERE).number
    for joules in range(100, 700, 100):
        job.renew(number, so_far(joules))
        found = shown.addends().totals
    assert found["uncounted"] == 0


def test_incomplete_totals_of_many_jobs_are_soon_continued(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "MANY", 2)
    clock, seconds = Clock(), 5.0

    class Slow(Overview):
        def _brief(self, job_id: str) -> dict[str, object]:
            clock.seconds += seconds
            return super()._brief(job_id)

    shown, uncounted = Slow(store, Folds(), clock), list[int]()
    for _ in JOBS:
        uncounted.append(shown.addends().totals["uncounted"])
        clock.seconds += seconds
    assert uncounted == [2, 1, 0]
