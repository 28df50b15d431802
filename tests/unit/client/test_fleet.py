"""The fleet by week, owner and GPU model: what it adds up to, and whom it names."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from html import escape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zeus.client.local import LocalJobs
from zeus.client.report import Digests
from zeus.client.report.energy import EnergyPart
from zeus.client.report.fleet import fleet, fleet_of
from zeus.client.report.fleet_text import html, summary, tables
from zeus.client.report.weeks import Cell, JobWeeks, first_day, week_of, weeks_until
from zeus.device.clock import VirtualClock
from zeus.errors import InputError
from zeus.job import Ending, Gpus, JobSpec, Outcome, UsageSegment
from zeus.job.trial import Kind
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting
from zeus.tariff.rates import Prices

DAY = 86_400.0
PRICES = Prices(per_kwh=0.30, gco2e_per_kwh=400.0, currency="EUR")
KWH = 3.6e6
V100 = Gpus("V100", 1, 250.0)


@given(days=st.integers(0, 40_000), count=st.integers(1, 60))
def test_weeks_follow_one_another_without_a_gap(days: int, count: int) -> None:
    last = week_of(datetime.fromtimestamp(days * DAY, UTC).isoformat())
    weeks = weeks_until(last, count)
    assert weeks[-1] == last and len(weeks) == len(set(weeks)) == count
    mondays = [first_day(week) for week in weeks]
    assert all((after - before).days == 7 for before, after in pairwise(mondays))


def cell(week: str, gpu: str, joules: float, saved: float | None, error: float = 0.0) -> Cell:
    energy = (EnergyPart("", False, False, joules=joules),)
    return Cell(week, gpu, 2, 1, energy, saved, error, energy if saved is not None else ())


def test_sums_by_week_owner_and_gpu_are_those_of_the_whole() -> None:
    jobs = {
        "asr": JobWeeks(
            "vision/alice", cells=(cell("2026-W46", "V100", 4 * KWH, KWH, 3.0), cell("2026-W47", "V100", KWH, KWH, 4.0))
        ),
        "lm": JobWeeks("carol", cells=(cell("2026-W47", "A40", 2 * KWH, -KWH, 24.0),)),
        "old": JobWeeks("carol", cells=(cell("2025-W01", "A40", 100 * KWH, None),)),
    }
    told = fleet(jobs, ["2026-W45", "2026-W46", "2026-W47"], PRICES)
    for parts in (told["weeks"], told["owners"], told["gpus"]):
        for name in ("joules", "recurrences", "failed"):
            assert sum(one[name] for one in parts) == told["totals"][name]
        assert sum(one["saved_joules"] or 0.0 for one in parts) == told["totals"]["saved_joules"]
    totals = told["totals"]
    assert (totals["joules"], totals["saved_joules"], totals["recurrences"], totals["failed"]) == (7 * KWH, KWH, 6, 3)
    assert totals["saved_joules_error"] == math.hypot(3.0 + 4.0, 24.0), "weeks of a job share its default; jobs do not"
    assert totals["money"] == pytest.approx(7 * 0.30)
    assert (totals["saved_money"], told["currency"]) == (pytest.approx(0.30), "EUR")
    assert totals["saved_gco2e"] == pytest.approx(400.0)
    for name, rate in (("saved_money_error", 0.30), ("saved_gco2e_error", 400.0)):
        assert totals[name] == pytest.approx(totals["saved_joules_error"] / KWH * rate), "rates are exact"
    assert told["weeks"][0]["saved_joules"] is None, "nothing ran, so nothing is known"
    assert [one["owner"] for one in told["owners"]] == ["vision/alice", "carol"]


def test_money_in_two_currencies_and_money_that_is_not_known_are_not_added() -> None:
    euro, dollar = (
        (EnergyPart(name, True, False, joules=KWH, money=0.3, priced_joules=KWH),) for name in ("EUR", "USD")
    )

    def told(*energies: tuple[EnergyPart, ...]) -> float | None:
        cells = tuple(Cell("2026-W47", "", 1, 0, one, None, 0.0, ()) for one in energies)
        money: float | None = fleet({"a": JobWeeks(cells=cells)}, ["2026-W47"], Prices())["totals"]["money"]
        return money

    assert told(euro, euro) == pytest.approx(0.6)
    assert told(euro, dollar) is None
    assert told(euro, (EnergyPart("", False, False, joules=1.0),)) is None


def outcome(joules: float, ending: Ending = Ending.CONVERGED) -> Outcome:
    stretch = UsageSegment.of(Kind.EPOCH, 250.0, False, 3, joules, 30.0)
    return Outcome(ending=ending, joules=joules, seconds=30.0, epochs=3, metric=0.9, stretches=(stretch,))


@pytest.fixture
def store() -> MemoryStore:
    """A year of a job that loses, one that fails, one that did not run for months, and one that never did."""
    clock = VirtualClock()
    clock.sleep(1_767_600_000.0 - clock.wall())  # 2026-01-05, a Monday
    store = MemoryStore(clock.wall)
    jobs = LocalJobs(store)
    for name, owner in (("asr", "vision/alice"), ("lm", "carol"), ("ocr", ""), ("tts", "carol")):
        with acting(Actor("x", owner=owner)):
            store.register(
                JobSpec(job_id=name, job_id_prefix=name, batch_sizes=(8, 16), default_batch_size=16, policy="paper")
            )
    store.tell("ocr", jobs.ask("ocr", V100)[0].number, outcome(50.0))
    clock.sleep(60 * DAY)
    for _ in range(12):
        clock.sleep(DAY)
        trial, _now = jobs.ask("asr", V100)
        store.tell("asr", trial.number, outcome(1000.0 if trial.batch_size == 16 else 3000.0))
    for _ in range(3):
        store.tell("lm", jobs.ask("lm", V100, max_tries=1)[0].number, Outcome(ending=Ending.LOST))
    return store


def test_the_fleet_names_who_loses_fails_and_did_not_run(store: MemoryStore) -> None:
    told = LocalJobs(store).fleet(4, "2026-W12")
    assert [one["week"] for one in told["weeks"]] == ["2026-W09", "2026-W10", "2026-W11", "2026-W12"]
    (brief,) = (row for row in LocalJobs(store).briefs() if row["job"] == "asr")
    assert brief["state"] == "losing"
    assert [(one["job"], one["owner"]) for one in told["losing"]] == [("asr", "vision/alice")]
    assert told["losing"][0]["sentence"] == brief["saving"]["sentence"]
    (failing,) = told["failing"]
    assert (failing["job"], failing["sentence"]) == ("lm", "3 of its last 10 trials crashed or were lost")
    assert [(one["job"], one["last_run_at"] is None) for one in told["idle"]] == [("ocr", False), ("tts", True)]
    whole = LocalJobs(store).fleet(52, "2026-W12")["totals"]
    assert whole["joules"] == sum(row["joules"] or 0.0 for row in LocalJobs(store).briefs())
    assert whole["recurrences"] == sum(row["recurrences"] for row in LocalJobs(store).briefs())


def test_weeks_are_read_from_the_stores_digests(store: MemoryStore) -> None:
    told = Digests(store).weeks(math.inf)
    again = Digests(store).weeks(0.0)
    assert again == told and again.uncounted == 0
    LocalJobs(store).pause("tts")
    assert Digests(store).weeks(0.0).uncounted == 0, "an outdated digest counts until it is computed again"


def test_text_and_page_say_the_same_and_load_nothing(store: MemoryStore) -> None:
    with acting(Actor("x", owner="<b>&eve")):
        store.register(JobSpec(job_id="<script>", job_id_prefix="x", batch_sizes=(8,), default_batch_size=8))
    told = LocalJobs(store).fleet(4, "2026-W12")
    page = html(told)
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b>&eve" not in page
    assert "http" not in page and "src=" not in page
    for _, headings, rows in tables(told):
        assert all(len(row) == len(headings) for row in rows)
        assert all(f"<td>{escape(one)}</td>" in page for row in rows for one in row)
    assert escape(summary(told)) in page


@pytest.mark.parametrize("last", ["2026-W60", "W12", "2026-12", "0000-W01"])
def test_a_week_that_there_is_not_is_refused(store: MemoryStore, last: str) -> None:
    with pytest.raises(InputError, match="give an ISO week such as"):
        fleet_of(Digests(store).weeks(0.0), 1, last, Prices())
