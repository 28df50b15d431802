"""What is refused at the door: too much, too often, not to be; and what never gets out."""

from __future__ import annotations

import base64
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import anyio
import httpx
import pytest
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

from support.live import PLACE, SPEC, bearer, hidden, live, token
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.errors import StoreError
from zeus.service.app import Settings, create
from zeus.service.request_limits import BodyLimit, Rate
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

HOSTILE = (
    "'; DROP TABLE zeus_jobs; --",
    '" OR 1=1 --',
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}} ${jndi:ldap://x}",
    "../../etc/passwd",
    "a/b?c#d%2e%2e&e=f",
    "%s %n %(name)s {0}",
    "ジョブ 🚀 é",
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> TestClient:
    """An open one with a job on it."""
    client = TestClient(create(store))
    assert client.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 201
    return client


# ---------------------------------------------------------------------- how much


def test_a_body_that_is_too_large_is_refused_whether_it_is_announced_or_not(store: MemoryStore) -> None:
    megabytes = 20  # more than lies in the buffers of a connection

    def pieces() -> Iterator[bytes]:
        yield b'{"spec": "'
        for _ in range(megabytes):
            yield b"x" * 1_000_000

    with live(store) as address:
        for path in ("/api/v1/jobs", "/report"):
            for content in (b"x" * (megabytes * 1_000_000), pieces()):
                answer = httpx.post(f"{address}{path}", content=content, timeout=PATIENCE_SECONDS)
                assert answer.status_code == 413
                assert "larger than 1000000 bytes" in answer.text
        assert httpx.get(f"{address}/healthz", timeout=PATIENCE_SECONDS).status_code == 200


def test_a_body_that_is_too_large_is_answered_with_413(store: MemoryStore) -> None:
    client = TestClient(create(store, Settings(body_bytes=1000, import_bytes=3000)))
    for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
        answer = client.post("/api/v1/jobs", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert client.post("/api/v1/import", content=b"x" * 2000).status_code == 422
    assert client.post("/api/v1/import", content=b"x" * 3001).status_code == 413
    assert client.post("/jobs", content=b"x" * 1001).json() == {"message": "the body is larger than 1000 bytes."}


def test_after_the_end_of_a_body_that_is_too_large_nothing_more_is_waited_for() -> None:
    body = [{"type": "http.request", "body": b"x" * 11}]
    sent: list[Message] = []

    async def reads(scope: AsgiScope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "http.request":
            pass

    async def once() -> None:
        async def receive() -> Message:
            return body.pop()  # there is one, and after it nobody comes

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "path": "/", "headers": []}
        await BodyLimit(reads, most=10, more={})(scope, receive, send)

    anyio.run(once)
    assert sent[0]["status"] == 413


def test_a_client_that_asks_too_often_is_told_to_slow_down(store: MemoryStore) -> None:
    client = TestClient(create(store, Settings(per_second=1)))
    answers = [client.get("/healthz")]
    assert answers[0].status_code == 200

    def is_refused() -> bool:
        answers.append(client.get("/healthz"))
        return answers[-1].status_code != 200

    eventually(is_refused)  # where each takes long, the bucket refills a little meanwhile
    assert (answers[-1].status_code, answers[-1].headers["retry-after"]) == (429, "1")
    assert answers[-1].json()["error"]["code"] == "too_many"


def test_a_rate_is_each_clients_own_and_refills() -> None:
    now = [0.0]
    rate = Rate(10, clock=lambda: now[0])
    assert [rate.allows("a") for _ in range(25)].count(True) == 20
    assert rate.allows("b")
    now[0] += 0.5
    assert [rate.allows("a") for _ in range(25)].count(True) == 5
    assert all(Rate(0).allows("a") for _ in range(10_000))


# ---------------------------------------------------------------------- what is said


def raw(client: TestClient, path: str, text: str) -> httpx.Response:
    return client.post(path, content=text, headers={"Content-Type": "application/json"})  # type: ignore[return-value]


VALID_JSON = ("-1", "1e300", "1e-300", '"1"', "[]")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", *VALID_JSON])
def test_a_cost_or_a_time_that_cannot_be_is_refused_and_nothing_is_changed(
    client: TestClient, store: MemoryStore, number: str
) -> None:
    client.post("/api/v1/jobs/asr/ask", json=PLACE)
    client.post("/jobs", json={**SPEC, "max_power": 250.0})
    before = store.export()
    tell = '{"ending": "converged", "joules": %s, "seconds": %s, "epochs": 1}'
    report = (
        '{"job_id": "asr", "batch_size": 16, "trial_number": 1, "time": %s, "energy": %s, "metric": 0.1,'
        ' "current_epoch": 1}'
    )
    epoch = '{"batch_size": 8, "joules": %s, "seconds": %s, "max_watts": 250}'
    profile = '{"measurements": [{"power_limit": 250, "energy": %s, "time": %s}]}'
    refused = 422 if number in VALID_JSON else 400
    wheres = {
        "/api/v1/jobs/asr/trials/1/tell": tell,
        "/report": report,
        "/api/v1/jobs/asr/profiled": epoch,
    }
    for path, text in wheres.items():
        for pair in ((number, "1"), ("1", number)):
            answer = raw(client, path, text % pair)
            assert answer.status_code == refused, (path, pair, answer.text)
    key = "/api/v1/jobs/asr/profiles?batch_size=8&gpu_model=V100&gpu_count=1"
    answer = client.put(key, content=profile % ("1", number), headers={"Content-Type": "application/json"})
    assert answer.status_code == refused
    ask = raw(client, "/api/v1/jobs/asr/ask", f'{{"max_watts": {number}}}')
    beat = raw(client, "/api/v1/jobs/asr/trials/1/heartbeat", f'{{"so_far": null, "next_cost": {number}}}')
    assert ask.status_code == beat.status_code == refused
    assert store.export() == before


def test_a_trial_or_job_that_is_not_known_is_404(client: TestClient) -> None:
    tell = {"ending": "converged", "joules": 1.0, "seconds": 1.0, "epochs": 1}
    assert client.post("/api/v1/jobs/asr/trials/7/tell", json=tell).status_code == 404
    assert client.get("/api/v1/jobs/asr/trials/7").status_code == 404
    assert client.get("/api/v1/jobs/asr/trials/7/log").status_code == 404
    for path in ("", "/trials", "/beliefs", "/registration", "/profiles/all"):
        assert client.get(f"/api/v1/jobs/nobody{path}").status_code == 404, path
    for number in (0, -1, 2**70, "x"):
        assert client.get(f"/api/v1/jobs/asr/trials/{number}").status_code == 422


BAD_NAMES = ("", "x" * 201, "x" * 10_000, "a\nb", "a\0b", "\x7f", "\x85", "a\u2028b", "abc\u202edcba", ".", "..")


@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name[:8]))
def test_a_name_that_could_not_be_shown_or_addressed_is_refused(client: TestClient, name: str) -> None:
    for path, body in (
        ("/api/v1/jobs", {"spec": {**SPEC, "job_id": name}}),
        *([("/api/v1/jobs", {"spec": {**SPEC, "job_id": None, "job_id_prefix": name}})] if set(name) != {"."} else []),
        ("/jobs", {**SPEC, "job_id": name, "max_power": 250.0}),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == 422, (path, answer.text)
        assert len(answer.text) < 500
    assert client.get("/jobs/batch_size", params={"job_id": name}).status_code == 422
    assert [job["job"] for job in client.get("/api/v1/jobs").json()["jobs"]] == ["asr"]


def test_a_prefix_of_any_length_that_is_taken_makes_an_id_that_can_be_addressed(client: TestClient) -> None:
    spec = {**SPEC, "job_id": None, "job_id_prefix": "p" * 180}
    made = client.post("/api/v1/jobs", json={"spec": spec}).json()["id"]
    assert client.get(f"/api/v1/jobs/{made}").status_code == 200


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_in_every_field_is_kept_as_text_and_does_nothing_else(
    client: TestClient, store: MemoryStore, text: str
) -> None:
    made = client.post("/api/v1/jobs", json={"spec": {**SPEC, "job_id": text, "job_id_prefix": text}})
    assert (made.status_code, made.json()["id"]) == (201, text)
    path = f"/api/v1/jobs/{quote(text, safe='')}"
    key = {"Idempotency-Key": "k" + "".join(sign for sign in text if 0x21 <= ord(sign) <= 0x7E)}
    asked = client.post(f"{path}/ask", json={**PLACE, "gpu_name": text}, headers=key)
    assert (asked.status_code, asked.json()["ask"]["gpus"]["model"]) == (201, text)
    profile = {"measurements": [{"power_limit": 250, "energy": 1.0, "time": 1.0}]}
    of = {"batch_size": 16, "gpu_model": text, "gpu_count": 1}
    assert client.put(f"{path}/profiles", params=of, json=profile).status_code == 200
    assert client.get(f"{path}/profiles", params=of).status_code == 200
    epoch = {**PLACE, "batch_size": 8, "gpu_name": text, "joules": 1, "seconds": 1}
    assert client.post(f"{path}/profiled", json=epoch).status_code == 201
    shown = client.get(path)
    assert (shown.json()["job"], shown.json()["gpu_model"]) == (text, text)
    assert shown.headers["content-type"] == "application/json"
    assert client.get("/api/v1/jobs", params={"q": text}).json()["jobs"][0]["job"] == text
    assert [row["gpu_model"] for row in client.get(f"{path}/trials").json()["trials"]] == [text]
    assert client.get("/api/v1/export", params={"job": text}).status_code == 200
    assert client.get("/metrics").status_code == 200
    for refused in (
        client.post("/api/v1/jobs", json={"spec": {**SPEC, "policy": text}}),
        client.post("/api/v1/jobs/asr/trials/1/tell", json={"ending": text}),
        client.post("/api/v1/jobs", json={text: text}),
        client.get("/api/v1/jobs/asr/trials", params={"ending": text}),
        client.post("/login", json={"token": text}),
    ):
        assert refused.status_code in (401, 422)
        assert refused.headers["content-type"] == "application/json"
    old = {**SPEC, "job_id": f"old {text}", "job_id_prefix": text, "gpu_model": text, "max_power": 250.0}
    assert client.post("/jobs", json=old).status_code == 201
    assert client.get("/jobs/batch_size", params={"job_id": f"old {text}"}).status_code == 200
    assert set(store.names().page) == {"asr", text, f"old {text}"}
    assert client.delete(path).status_code == 204


def test_no_module_is_imported_because_a_client_names_a_policy_by_it(client: TestClient) -> None:
    named, of = "antigravity:fly", {"spec": {**SPEC, "job_id": "other", "policy": "antigravity:fly"}}
    late = {
        **of,
        **PLACE,
        "batch_size": 16,
        "key": "k",
        "outcome": {"ending": "converged", "epochs": 1, "seconds": 1.0},
    }
    for refused in (
        client.post("/api/v1/jobs", json=of),
        client.patch("/api/v1/jobs/asr", json={"policy": named}),
        client.post("/api/v1/jobs/other/reports", json=late),
        client.post("/jobs", json={**of["spec"], "gpu_model": "V100", "max_power": 250.0}),
    ):
        assert refused.status_code == 422, refused.text
        assert "a service loads none that its clients name" in refused.text
    assert "antigravity" not in sys.modules


def test_halves_of_characters_and_bottomless_json_are_refused(client: TestClient) -> None:
    deep = "[" * 100_000
    for text in ('{"\\ud800": 1}', '{"spec": {"job_id": "\\ud800"}}', deep, '{"a":' * 50_000, "{", "", "null", "\xff"):
        assert raw(client, "/api/v1/jobs", text).status_code in (400, 422), text[:20]
        assert raw(client, "/report", text).status_code in (400, 422), text[:20]
    for lines in (deep, '{"line": ' * 50_000, "\\ud800", '{"line":"job"}'):
        assert client.post("/api/v1/import", content=lines).status_code == 422
    assert client.post("/api/v1/import", content=b"\xff\xfe").status_code == 422


# ---------------------------------------------------------------------- what never gets out


class Broken(MemoryStore):
    """Fails in a way that nobody thought of."""

    def pulse(self, *_: object, **__: object) -> dict[str, str]:
        raise RuntimeError("the secret of the house")

    names = pulse  # type: ignore[assignment]


class Away(MemoryStore):
    """Does not answer."""

    def pulse(self, *_: object, **__: object) -> dict[str, str]:
        raise StoreError("the store did not answer. Nothing was changed; try again.")

    names = pulse  # type: ignore[assignment]


def test_no_stack_trace_reaches_a_client(caplog: pytest.LogCaptureFixture) -> None:
    client = TestClient(create(Broken()))
    answer = client.get("/api/v1/pulse")
    assert answer.status_code == 500
    assert answer.json() == {
        "error": {"code": "failed", "message": "the service failed to answer this request. Its log has the reason."}
    }
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "the secret of the house" in caplog.text  # where its owner looks


def test_a_store_that_is_away_is_503_with_a_time_to_come_back() -> None:
    answer = TestClient(create(Away())).get("/api/v1/pulse")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "store_away"


def test_secrets_and_what_users_typed_stay_out_of_the_log(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "zeus")
    secret = token(store, Scope.ADMIN)
    client = TestClient(create(store, Settings(open=False, log_json=True)))
    client.post("/login", json={"token": secret})
    client.get("/api/v1/jobs", headers=bearer(secret), params={"q": "hidden-word"})
    client.get("/api/v1/jobs/hidden-word", headers=bearer(secret))
    client.get("/hidden-word", headers=bearer(secret))
    basic = base64.b64encode(f":{secret}".encode()).decode()
    client.get("/jobs/batch_size?job_id=hidden-word", headers={"Authorization": f"Basic {basic}"})
    assert hidden(secret) not in caplog.text
    assert basic not in caplog.text
    assert "hidden-word" not in caplog.text
    lines: list[dict[str, Any]] = [
        json.loads(one.message) for one in caplog.records if one.name == "zeus.service.requests"
    ]
    assert [(line["route"], line["status"]) for line in lines] == [
        ("/login", 200),
        ("/api/v1/jobs", 200),
        ("/api/v1/jobs/{job_id}", 404),
        ("none", 404),
        ("/jobs/batch_size", 404),
    ]
    assert set(lines[0]) == {"at", "method", "route", "status", "ms", "client"}
