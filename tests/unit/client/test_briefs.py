"""Briefs of many jobs are computed once, and again only when something has changed."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from zeus.client.folds import Folds
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.report import brief, brief_of, each_brief, report
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.store import MemoryStore, Store
from zeus.store.api import START, Log, LogPoint
from zeus.tariff.rates import Prices

HERE = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)
JOBS = ("asr", "lm", "vision")


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    for name in JOBS:
        spec = JobSpec(job_id=name, job_id_prefix=name, batch_sizes=(8, 16, 32), default_batch_size=16)
        job = RecurringJob.register(LocalJobs(store), spec)
        job.tell(job.ask(HERE).number, DONE)
    return store


class Reader:
    """Somebody who lists jobs, and remembers which ones had to be computed."""

    def __init__(self, store: Store, prices: Prices | None = None) -> None:
        self.store, self.prices, self.computed = store, prices or Prices(), list[str]()

    def read(self) -> dict[str, dict[str, Any]]:
        self.computed = []
        return dict(each_brief(self.store, self.store.pulse(), self._make, self.prices))

    def _make(self, job_id: str) -> dict[str, Any]:
        self.computed.append(job_id)
        return brief_of(self.store, job_id, prices=self.prices)


def test_what_one_reader_computed_another_finds(store: Store) -> None:
    first, second = Reader(store), Reader(store)
    briefs = first.read()
    assert (list(briefs), first.computed) == ([*JOBS], [*JOBS])
    assert (second.read(), second.computed) == (briefs, [])


def test_a_job_that_changed_is_computed_again(store: Store) -> None:
    reader = Reader(store)
    reader.read()
    job = RecurringJob.find(LocalJobs(store), "lm")
    job.tell(job.ask(HERE).number, DONE)
    assert (reader.read()["lm"]["trials"], reader.computed) == (2, ["lm"])


def test_a_job_that_runs_is_computed_each_time(store: Store) -> None:
    reader, job = Reader(store), RecurringJob.find(LocalJobs(store), "lm")
    number = job.ask(HERE).number
    reader.read()
    job.renew(number, replace(DONE, ending=Ending.LOST, epochs=2))
    assert (reader.read()["lm"]["running"][0]["epochs"], reader.computed) == (2, ["lm"])


def test_who_pays_another_price_computes_for_himself(store: Store) -> None:
    Reader(store, Prices(per_kwh=0.3, currency="EUR")).read()
    other = Reader(store, Prices(per_kwh=0.4, currency="EUR"))
    assert other.read()["asr"]["footprint"]["money"] == pytest.approx(0.4 * 1000 / 3.6e6)
    hourly = Reader(store, Prices(per_kwh=lambda hour: 0.5, currency="EUR"))
    hourly.read()
    hourly.read()
    assert hourly.computed == [*JOBS], "a rate that may differ tomorrow is not kept"


def test_a_brief_computes_nothing_that_it_does_not_show(store: Store) -> None:
    found = report(store, "asr")
    brief(found)
    assert not {"sizes", "limits", "front"} & vars(found).keys()


def test_a_job_that_was_removed_meanwhile_is_left_out(store: Store) -> None:
    reader, pulse = Reader(store), store.pulse()
    store.forget("lm")
    found = each_brief(store, pulse, lambda name: brief_of(store, name), reader.prices)
    assert [name for name, _ in found] == ["asr", "vision"]


def test_what_was_computed_is_kept_although_its_reader_stops(store: Store) -> None:
    reader = Reader(store)
    found = each_brief(store, store.pulse(), reader._make, reader.prices)
    next(found)
    found.close()
    reader.read()
    assert reader.computed == ["lm", "vision"]


def test_a_past_is_folded_before_its_job_is_locked(store: Store) -> None:
    folds, asked = Folds(), list[LogPoint]()

    def facts(since: LogPoint) -> Log:
        asked.append(since)
        return store.log("asr", since)

    folds.prepare(store, "asr")
    folds.state(store.job("asr"), facts)  # as an ask does while it holds the job
    assert asked == [LogPoint(2, store.log("asr").end.mark)] != [START]
    folds.prepare(store, "unknown")  # the ask itself says what is wrong


def test_of_several_that_ask_for_one_job_the_first_folds_its_past(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folds, read, others = Folds(), list[LogPoint](), threading.Barrier(4)
    log = store.log

    def slow(job_id: str, since: LogPoint = START) -> Log:
        read.append(since)
        time.sleep(0.1)  # the others arrive meanwhile
        return log(job_id, since)

    monkeypatch.setattr(store, "log", slow)

    def ask() -> None:
        others.wait()
        folds.prepare(store, "asr")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(read) == [START, *[log("asr").end] * 3]
