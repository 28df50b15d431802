"""A list that is filtered and sorted on the server."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from support.store_places import HERE, SPEC
from support.waiting import eventually
from zeus.client.local import LocalJobs
from zeus.job import Ending, Gpus, Outcome, replace
from zeus.service.app import create
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting

CRASHED = Outcome(ending=Ending.CRASHED)
OWNERS = {"asr": "vision/alice", "lm": "carol", "ocr": "vision/bob", "tts": ""}


@pytest.fixture
def store() -> MemoryStore:
    """Four jobs: one runs, one fails, one is done, one is new."""
    store = MemoryStore()
    jobs = LocalJobs(store)
    for name, owner in OWNERS.items():
        with acting(Actor("x", owner=owner)):
            store.register(replace(SPEC, job_id=name))
    jobs.ask("asr", HERE.gpus)
    for _ in range(3):
        store.tell("lm", jobs.ask("lm", Gpus("A40", 2, 600.0))[0].number, CRASHED)
    done = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=10.0, epochs=3, metric=0.9)
    store.tell("ocr", jobs.ask("ocr", HERE.gpus)[0].number, done)
    return store


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["asr", "lm", "ocr", "tts"]),
        ("desc=true", ["tts", "ocr", "lm", "asr"]),
        ("owner=carol", ["lm"]),
        ("owner=", ["tts"]),
        ("gpu=V100", ["asr", "ocr"]),
        ("state=running", ["asr"]),
        ("state=failing", ["lm"]),
        ("state=new", ["tts"]),
        ("sort=failures&desc=true&limit=1", ["lm"]),
        ("sort=trials&desc=true", ["lm", "asr", "ocr", "tts"]),
        ("sort=owner", ["lm", "asr", "ocr", "tts"]),
        ("q=r&gpu=V100&offset=1", ["ocr"]),
    ],
)
def test_a_list_is_filtered_and_sorted(store: MemoryStore, query: str, shown: list[str]) -> None:
    client = TestClient(create(store))
    eventually(lambda: client.get("/api/v1/summary").json()["uncounted"] == 0)  # a list waits only for a moment
    told = client.get(f"/api/v1/jobs?{query}").json()
    assert [row["job"] for row in told["jobs"]] == shown
    assert told["owners"] == ["", "carol", "vision/alice", "vision/bob"]
    assert told["gpus"] == ["2 x A40", "V100"]
    assert told["uncounted"] == 0


def test_a_row_stands_as_the_filter_says(store: MemoryStore) -> None:
    client = TestClient(create(store))
    rows = client.get("/api/v1/jobs").json()["jobs"]
    for row in rows:
        found = client.get(f"/api/v1/jobs?state={row['state']}").json()["jobs"]
        assert row["job"] in [one["job"] for one in found]


def test_an_order_or_a_state_that_there_is_not_is_refused(store: MemoryStore) -> None:
    client = TestClient(create(store))
    assert client.get("/api/v1/jobs?sort=colour").status_code == 422
    assert client.get("/api/v1/jobs?state=tired").status_code == 422


def test_a_filter_follows_the_store(store: MemoryStore) -> None:
    client = TestClient(create(store))
    assert client.get("/api/v1/jobs?state=running").json()["total"] == 1
    LocalJobs(store).ask("tts", HERE.gpus)
    store.forget("asr")
    assert [row["job"] for row in client.get("/api/v1/jobs?state=running").json()["jobs"]] == ["tts"]
