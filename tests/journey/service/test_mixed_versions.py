"""A client or a store that is one version older or newer works, or says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from support.live import PLACE, SPEC, live
from support.served import Heard, odd_service
from support.store_places import SPEC as JOB
from zeus.client.api import TrialLog
from zeus.client.connection import Connection, OlderService
from zeus.client.http import HttpJobs
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.job import Gpus
from zeus.service.app import create
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting

ASR = "/api/v1/jobs/asr"
# What 0.2 reads of a trial and of its ask; it refuses any other field.
TRIAL = {"kind", "version", "ask", "decision", "asked", "lost", "ended", "outcome"}
ASK = {"number", "recurrence", "attempt", "gpus", "eta", "last", "id", "target"}
BESIDE = {"leased_until", "so_far", "spec", "generation", "asked_at", "changed_at"}


def test_a_client_of_0_2_reads_every_answer_to_a_training() -> None:
    store = MemoryStore()
    client = TestClient(create(store))
    with acting(Actor("alice", owner="vision/alice")):
        client.post("/api/v1/jobs", json={"spec": SPEC})
        store.own("asr", "vision/alice")
        store.pause("asr")
    origin = {"Zeus-Origin": "user=alice&host=node7"}  # of another client of the same job
    client.post(f"{ASR}/ask", json=PLACE, headers=origin)
    end = {"ending": "converged", "joules": 10.0, "seconds": 1.0, "epochs": 1, "metric": 0.9}
    answers: list[dict[str, Any]] = [
        client.post(f"{ASR}/ask", json=PLACE).json(),
        client.get(f"{ASR}/trials/1").json(),
        client.post(f"{ASR}/trials/1/heartbeat", json={}).json()["trial"],
        client.post(f"{ASR}/trials/1/tell", json=end).json(),
    ]
    for answer in answers:
        assert set(answer) <= TRIAL | BESIDE
        assert set(answer["ask"]) == ASK
    assert store.trial("asr", 1).origin is not None


def test_an_export_with_owners_pauses_and_origins_has_only_lines_that_0_2_reads() -> None:
    store = MemoryStore()
    with acting(Actor("alice", owner="vision/alice")):
        store.register(JOB)
        store.pause("asr")
    for line in map(json.loads, store.export()):
        known = {"line", "policy_version", "revision", "at", "excused", "first", "spec"}
        assert known <= set(line), "0.2 ignores what it does not know in a line, but refuses it in a spec"
        assert "owner" not in line["spec"] and "paused_by" not in line["spec"]


def older(heard: Heard) -> None:
    """A service that does not know the request, as 0.2 does not know newer ones."""
    body = json.dumps({"error": {"code": "not_known", "message": "Not Found"}}).encode()
    heard.send_response(404)
    heard.send_header("Content-Type", "application/json")
    heard.send_header("Content-Length", str(len(body)))
    heard.end_headers()
    heard.wfile.write(body)


def test_an_older_service_is_named_when_it_does_not_know_a_request() -> None:
    with odd_service(older) as address:
        jobs = HttpJobs(Connection(address))
        with pytest.raises(
            OlderService, match=r"does not know GET /jobs/asr/audit: it is older than this Zeus. Update it"
        ):
            jobs.audit("asr")
        jobs.close()


def test_a_log_that_an_older_service_does_not_take_is_dropped_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with odd_service(older) as address:
        outbox = Outbox(HttpJobs(Connection(address)), folder=tmp_path)
        ResilientJobs(outbox).keep_log(TrialLog("asr", 1, "epoch 1"), is_last=True)
        assert outbox.spool.waiting() == []
        outbox.close()
    assert "refused" not in caplog.text


def test_a_newer_client_trains_at_a_service_that_ignores_who_it_is() -> None:
    store = MemoryStore()
    with live(store) as address:
        jobs = HttpJobs(Connection(address))
        jobs.register(JOB)
        trial, _ = jobs.ask("asr", Gpus("V100", 1, 250.0))
        jobs.keep_log(TrialLog("asr", trial.number, "epoch 1", trial.id))
        assert jobs.told_log("asr", trial.number)["log"] == "epoch 1"
        jobs.close()
    origin = store.trial("asr", 1).origin
    assert origin is not None and origin.folder == str(Path.cwd())
