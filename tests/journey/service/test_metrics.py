"""`/metrics` says what the store says, and the board asks for nothing else."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.service.app import create
from zeus.service.metrics import JOB
from zeus.store import MemoryStore

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16), default_batch_size=16, eta_knob=0.5)
HERE = Gpus("V100", 1, 200.0)
HOSTILE = 'a"b\\c {x="1"}'


def scraped(client: TestClient) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample by its name and labels."""
    text = client.get("/metrics").text
    families = text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def key(name: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return name, frozenset(labels.items())


@pytest.fixture
def store() -> MemoryStore:
    """One job that ran three times and runs now, and one with a hostile name that never ran."""
    store = MemoryStore()
    job = RecurringJob.register(LocalJobs(store), SPEC)
    for joules in (100.0, 120.0):
        outcome = Outcome(ending=Ending.CONVERGED, joules=joules, seconds=1.0, epochs=2)
        job.tell(job.ask(HERE).number, outcome)
    job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    job.ask(HERE)
    RecurringJob.register(LocalJobs(store), replace(SPEC, job_id=HOSTILE))
    return store


def test_jobs_trials_joules_and_costs_are_those_of_the_store(store: MemoryStore) -> None:
    told = scraped(TestClient(create(store)))
    assert told[key("zeus_jobs")] == 2
    by_ending = {"converged": 2, "crashed": 1, "open": 1}
    assert {ending: told[key("zeus_trials", ending=ending)] for ending in by_ending} == by_ending
    assert told[key("zeus_job_joules", zeus_job="asr")] == 220.0
    # Equation 2 with half of 200 W: each second costs 100 J more
    assert told[key("zeus_job_cost_joules", zeus_job="asr")] == pytest.approx(0.5 * 220.0 + 0.5 * 200.0 * 2)
    assert told[key("zeus_job_recurrences", zeus_job="asr")] == 4
    assert told[key("zeus_job_recurrences", zeus_job=HOSTILE)] == 0
    assert key("zeus_job_joules", zeus_job=HOSTILE) not in told  # not known is not zero


def test_what_changes_in_the_store_is_in_the_next_scrape(store: MemoryStore) -> None:
    client = TestClient(create(store))
    before = scraped(client)
    RecurringJob.find(LocalJobs(store), "asr").tell(
        4, Outcome(ending=Ending.CONVERGED, joules=80.0, seconds=1.0, epochs=2)
    )
    after = scraped(client)
    assert after[key("zeus_job_joules", zeus_job="asr")] - before[key("zeus_job_joules", zeus_job="asr")] == 80.0
    assert after[key("zeus_trials", ending="converged")] == 3
    assert key("zeus_trials", ending="open") not in after


def test_requests_are_counted_by_route_and_status_and_never_by_what_was_typed(store: MemoryStore) -> None:
    client = TestClient(create(store))
    for path in ("asr", "asr", "hidden-word"):
        client.get(f"/api/v1/jobs/{path}")
    client.get("/hidden-word")
    client.request("HIDDEN-WORD", "/healthz")
    told, route = scraped(client), "/api/v1/jobs/{job_id}"
    assert told[key("zeus_requests_total", method="GET", route=route, status="200")] == 2
    assert told[key("zeus_requests_total", method="GET", route=route, status="404")] == 1
    assert told[key("zeus_request_seconds_count", method="GET", route=route)] == 3
    assert told[key("zeus_request_seconds_bucket", method="GET", route=route, le="+Inf")] == 3
    assert told[key("zeus_requests_total", method="GET", route="none", status="404")] == 1
    assert "hidden-word" not in client.get("/metrics").text.lower()


def test_the_board_asks_for_metrics_that_there_are(store: MemoryStore) -> None:
    from zeus.cli.monitor_prometheus import METRICS

    board = json.loads(resources.files("zeus.service").joinpath("grafana.json").read_text())
    client = TestClient(create(store))
    client.get("/metrics")
    known = {name for name, _ in scraped(client)} | {"zeus_job_saved_joules", *METRICS}
    asked = {
        name
        for panel in board["panels"]
        for target in panel.get("targets", ())
        for name in re.findall(r"\bzeus_\w+", target["expr"])
    }
    assert asked - {JOB} <= known
    assert {"zeus_job_joules", "zeus_trials", "zeus_request_seconds_bucket", "zeus_gpu_watts"} <= asked
    assert all(panel["title"] for panel in board["panels"])
