"""What answers at a service's address and is none, or is not itself: a training goes on all the same."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the service is not installed")

import httpx

from support.live import live
from support.served import DONE, V100, Answer, Heard, odd_service, remote, says
from support.waiting import PATIENCE_SECONDS, limits
from zeus.job import Ending, Outcome
from zeus.store.memory import MemoryStore


def hangs(request: Heard) -> None:
    time.sleep(4.0)  # longer than anybody waits


ODD: dict[str, Answer] = {
    "500": says(500, '{"error": {"code": "failed", "message": "it failed"}}'),
    "503": says(503, "<h1>Service Unavailable</h1>", "text/html"),
    "404 of a proxy": says(404, "<h1>Not Found</h1>", "text/html"),
    "a page": says(200, "<h1>Welcome</h1>", "text/html"),
    "half of an answer": says(200, '{"id": "asr", "sp'),
    "another answer": says(200, '{"hello": [1, 2]}'),
    "elsewhere": says(307, "", Location="https://elsewhere/"),
    "hangs up": lambda request: request.connection.close(),
    "hangs": hangs,
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_a_service_answers_a_training_goes_on_and_its_report_waits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_PATIENCE", "0")
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(store_retry=0.3, store_answer=1.0))
    with odd_service(ODD[name]) as url:
        job = remote(url, tmp_path)
        trial = job.ask(V100)
        assert (trial.batch_size, trial.decision.cost_limit, trial.ask.last) == (16, None, True)
        assert job.progress(trial.number, Outcome(ending=Ending.LOST, joules=1.0, seconds=1.0, epochs=1), 1e9)
        job.profiled(16, V100, joules=3.0, seconds=1.0)
        assert job.tell(trial.number, DONE).ending is Ending.CONVERGED
        assert job.trial(trial.number).outcome == DONE
    said: list[Any] = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("0*.json"))]
    assert [one["message"]["type"] for one in said] == ["ran", "epoch_used"]  # the job is known by then
    assert not (tmp_path / "refused").exists()


def test_an_ask_whose_answer_was_lost_is_repeated_and_opens_one_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_PATIENCE", "30")
    lost, store = [], MemoryStore()

    def forward(request: Heard) -> None:
        names = ("Content-Type", "Idempotency-Key", "Zeus-Wire")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        answer = httpx.request(
            request.command, behind + request.path, content=request.body, headers=headers, timeout=PATIENCE_SECONDS
        )
        if request.path.endswith("/ask") and not lost:
            lost.append(answer.status_code)
            request.close_connection = True  # the service has done it, and nobody hears of it
        else:
            says(answer.status_code, answer.text)(request)

    with live(store) as behind, odd_service(forward) as url:
        trial = remote(url, tmp_path).ask(V100)
    assert lost == [201]
    assert [kept.trial for kept in store.trials("asr")] == [trial]
