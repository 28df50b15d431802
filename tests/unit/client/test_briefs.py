"""A list of many jobs reads what the store keeps of each, and says the same as if all were computed again."""

from __future__ import annotations

import threading
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache
from zeus.client.recurring import RecurringJob
from zeus.client.report import Digests, brief, report
from zeus.client.report import digests as module
from zeus.client.report.energy import energy_of, footprint
from zeus.job import Ending, Gpus, JobSpec, Outcome, TrialRecord, replace
from zeus.job.hourly import HourlyUse, HourUse
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import MemoryStore, Store
from zeus.store.api import START, Log, LogPoint, utc
from zeus.tariff.rates import Footprint, HourlyRate, Prices, hour_of, hour_text

HERE = Gpus("V100", 1, 250.0)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)
JOBS = ("asr", "lm", "vision")
NOON = 498_540  # an hour
FREE = Prices()


@pytest.fixture
def store() -> Store:
    store = MemoryStore()
    for name in JOBS:
        spec = JobSpec(job_id=name, job_id_prefix=name, batch_sizes=(8, 16, 32), default_batch_size=16)
        job = RecurringJob.register(LocalJobs(store, digests=Nobody()), spec)
        job.tell(job.ask(HERE).number, DONE)
    return store


class Nobody:
    """Computes no digest."""

    def changed(self, job_id: str, trials: int = 0) -> None:
        pass


class Reader(Digests):
    """Somebody who lists jobs, and remembers which ones had to be computed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.computed = list[str]()

    def read(self, prices: Prices = FREE) -> dict[str, dict[str, Any]]:
        self.computed = []
        return {row["job"]: row for row in self.briefs(prices)}

    def _computed(self, missing: Any) -> Any:
        self.computed += missing
        return super()._computed(missing)


def anew(store: Store, prices: Prices = FREE) -> dict[str, dict[str, Any]]:
    return {name: brief(report(store, name), prices) for name in sorted(store.pulse())}


def test_what_one_reader_computed_another_finds(store: Store) -> None:
    first, second = Reader(store), Reader(store)
    briefs = first.read()
    assert (list(briefs), first.computed) == ([*JOBS], [*JOBS])
    assert (second.read(), second.computed) == (briefs, [])
    assert briefs == anew(store)


def test_a_job_that_changed_is_computed_again(store: Store) -> None:
    reader = Reader(store)
    reader.read()
    store.tell("lm", ask(store, "lm"), DONE)
    assert (reader.read()["lm"]["trials"], reader.computed) == (2, ["lm"])
    store.put_profile(
        ProfileKey("asr", 16, "V100", 1), PowerProfile.of([LimitSlice(250.0, 10, 1.0, 200.0)], limits=[250])
    )
    assert (reader.read(), reader.computed) == (anew(store), ["asr"])


def test_what_a_running_trial_reports_is_shown_without_computing_anything(store: Store) -> None:
    reader, number = Reader(store), ask(store, "lm")
    reader.read()
    for epochs in (1, 2):
        store.renew("lm", number, replace(DONE, ending=Ending.LOST, epochs=epochs, joules=400.0 * epochs))
        found = reader.read()["lm"]
        assert found == anew(store)["lm"]
        assert (found["running"][0]["epochs"], found["joules"]) == (epochs, 1000.0 + 400.0 * epochs)
        assert reader.computed == []
        assert reader.totals(FREE, 0.0).rows["lm"].joules == found["joules"]


def test_each_reader_pays_his_own_prices_for_the_same_digests(store: Store) -> None:
    Reader(store).read()
    for rate in (0.3, 0.4, lambda hour: 0.5):
        reader, prices = Reader(store), Prices(per_kwh=rate, currency="EUR")
        found = reader.read(prices)
        assert found == anew(store, prices) and reader.computed == []
        assert found["asr"]["footprint"]["money"] == pytest.approx(1000 / 3.6e6 * (0.5 if callable(rate) else rate))


def test_digests_of_another_version_are_not_used(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Reader(store).read()
    monkeypatch.setattr(module, "SHAPE", 0)
    reader = Reader(store)
    assert reader.totals(FREE, 0.0) == ({}, len(JOBS), 0)
    reader.read()
    assert reader.computed == [*JOBS]


def test_totals_count_what_is_outdated_and_say_what_is_missing(store: Store) -> None:
    reader = Reader(store)
    reader.read()
    store.tell("lm", ask(store, "lm"), DONE)
    store.register(JobSpec(job_id="new", job_id_prefix="new", batch_sizes=(8, 16), default_batch_size=16))
    found = reader.totals(FREE, 0.0)
    assert ({name: one.trials for name, one in found.rows.items()}, found.uncounted) == (dict.fromkeys(JOBS, 1), 1)
    assert found.outdated == 1
    found = reader.totals(FREE, 60.0)
    assert ({name: one.trials for name, one in found.rows.items()}, found.uncounted) == (
        {"asr": 1, "lm": 2, "vision": 1, "new": 0},
        0,
    )


def test_a_brief_computes_nothing_that_it_does_not_show(store: Store) -> None:
    found = report(store, "asr")
    brief(found)
    assert not {"sizes", "limits", "front"} & vars(found).keys()


def test_a_job_that_was_removed_meanwhile_is_left_out(store: Store) -> None:
    class Removing(MemoryStore):
        """Removes a job after it was listed."""

        def glances(self, *arguments: Any, **options: Any) -> Any:
            found = super().glances(*arguments, **options)
            self.forget("lm")
            return found

    removing = Removing()
    removing.import_lines(store.export())
    assert [row["job"] for row in Digests(removing).briefs(FREE)] == ["asr", "vision"]


# ---------------------------------------------------------------------- energy, added up and priced later

rates = st.one_of(st.none(), st.floats(0.01, 5.0), st.dictionaries(st.integers(NOON, NOON + 6), st.floats(0.01, 5.0)))
rows = st.lists(
    st.builds(
        HourUse,
        st.integers(NOON, NOON + 6).map(hour_text),
        st.floats(0.0, 1e6),
        st.none() | st.floats(0.01, 5.0),
        st.none() | st.floats(0.0, 500.0),
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def trials(draw: st.DrawFn) -> list[TrialRecord]:
    """Trials that recorded their energy by hour, or did not, or whose energy is unknown."""
    store = MemoryStore()
    store.register(JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16))
    found = []
    for _ in range(draw(st.integers(0, 6))):
        number = ask(store, "asr")
        hourly = draw(st.none() | st.builds(HourlyUse, rows.map(tuple), currency=st.sampled_from(["", "EUR"])))
        if hourly is not None:
            priced = any(row.price is not None for row in hourly.rows)
            rated = any(row.gco2e_per_kwh is not None for row in hourly.rows)
            hourly = replace(hourly, has_price=priced or draw(st.booleans()), has_carbon=rated)
        joules = draw(st.none() | st.floats(1.0, 1e6))
        store.tell("asr", number, replace(DONE, joules=joules, hourly=hourly))
        begin = NOON * 3600 + draw(st.floats(0, 3600))
        times = {"asked_at": utc(begin), "changed_at": utc(begin + draw(st.floats(0, 4 * 3600)))}
        found.append(replace(store.trial("asr", number), **times))
    return found


def one_by_one(kept: TrialRecord, prices: Prices) -> Footprint | None:
    """What a trial comes to, hour by hour."""
    told = kept.latest_outcome
    assert told is not None
    if told.joules is None:
        return None
    if told.hourly is not None:
        return told.hourly.priced(prices)
    begin, end = (datetime.fromisoformat(text).timestamp() for text in (kept.asked_at, kept.changed_at))
    steps = 400
    hours = [int(begin + (end - begin) * (step + 0.5) / steps) // 3600 for step in range(steps)]
    return prices.footprint({hour: told.joules * hours.count(hour) / steps for hour in {*hours}})


@settings(max_examples=examples(100))
@given(some=trials(), price=rates, carbon=rates)
def test_energy_that_is_added_up_first_costs_what_its_trials_cost(
    some: list[TrialRecord], price: Any, carbon: Any
) -> None:
    given_rates = [HourlyRate(one) if isinstance(one, dict) else one for one in (price, carbon)]
    prices = Prices(given_rates[0], "EUR", given_rates[1])
    known = [found for kept in some if (found := one_by_one(kept, prices)) is not None]
    found = footprint(energy_of(some), prices)
    assert (found is None) == (not known)
    if found is None:
        return
    whole = sum(one.joules for one in known)
    assert found.joules == pytest.approx(whole)
    for name in ("known_money", "priced_joules", "known_gco2e", "rated_joules"):
        wanted = sum(getattr(one, name) or 0.0 for one in known)
        assert (getattr(found, name) or 0.0) == pytest.approx(wanted, rel=0.05, abs=0.05 * whole), name


def test_the_hours_of_a_record_are_those_that_it_names() -> None:
    assert hour_of(hour_text(NOON)) == NOON


# ---------------------------------------------------------------------- folding before the lock


def ask(store: Store, name: str) -> int:
    return RecurringJob.find(LocalJobs(store, digests=Nobody()), name).ask(HERE).number


def test_a_past_is_folded_before_its_job_is_locked(store: Store) -> None:
    states, asked = PolicyStateCache(), list[LogPoint]()

    def facts(since: LogPoint) -> Log:
        asked.append(since)
        return store.log("asr", since)

    states.prepare(store, "asr")
    states.state(store.job("asr"), facts)  # as an ask does while it holds the job
    assert asked == [LogPoint(2, store.log("asr").end.mark)] != [START]
    states.prepare(store, "unknown")  # the ask itself says what is wrong


def test_of_several_that_ask_for_one_job_the_first_folds_its_past(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    states, read, others = PolicyStateCache(), list[LogPoint](), threading.Barrier(4)
    log = store.log

    def slow(job_id: str, since: LogPoint = START) -> Log:
        read.append(since)
        time.sleep(0.1)  # the others arrive meanwhile
        return log(job_id, since)

    monkeypatch.setattr(store, "log", slow)

    def ask() -> None:
        others.wait()
        states.prepare(store, "asr")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(read) == [START, *[log("asr").end] * 3]
