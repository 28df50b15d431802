"""Who gets in, what is refused at the door, and what never gets out."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.testclient import TestClient

from live import live
from zeus.errors import StoreError
from zeus.service import auth
from zeus.service.app import Settings, create
from zeus.service.limits import Rate
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

AT = "2024-01-01T00:00:00.000000+00:00"
SPEC = {"job_id": "asr", "job_id_prefix": "asr", "batch_sizes": [8, 16, 32], "default_batch_size": 16}
PLACE = {"gpu_name": "V100", "gpus": 1, "max_watts": 250.0}
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
def shut(store: MemoryStore) -> TestClient:
    """A service that needs tokens."""
    return TestClient(create(store, Settings(open=False)))


@pytest.fixture
def client(store: MemoryStore) -> TestClient:
    """An open one with a job on it."""
    client = TestClient(create(store))
    assert client.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 201
    return client


def token(store: MemoryStore, scope: Scope) -> str:
    kept, secret = auth.new(f"somebody who may {scope}", scope, AT)
    store.tokens.add(kept)
    return secret


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


# ---------------------------------------------------------------------- tokens


def test_without_a_token_or_with_a_wrong_one_nothing_is_told(shut: TestClient, store: MemoryStore) -> None:
    good = token(store, Scope.READ)
    wrong = ["x", "zeus__", "zeus_abc_def", good[:-1], good + "x", good.upper(), f"zeus_{good.split('_')[1]}_"]
    for headers in [{}, *map(bearer, wrong), {"Authorization": good}, {"Authorization": "Basic !!!"}]:
        for path in ("/api/v1/jobs", "/api/v1/summary", "/metrics", "/jobs/batch_size?job_id=asr", "/api/v1/export"):
            answer = shut.get(path, headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert answer.headers["www-authenticate"] == "Bearer"
    assert shut.get("/api/v1/jobs", headers=bearer(good)).status_code == 200
    assert shut.get("/api/v1/me", headers=bearer("x")).json() == {"name": None, "scope": None}
    assert shut.get("/healthz").status_code == shut.get("/readyz").status_code == 200


def test_a_revoked_token_is_refused_from_then_on(shut: TestClient, store: MemoryStore) -> None:
    secret = token(store, Scope.ADMIN)
    assert shut.get("/api/v1/jobs", headers=bearer(secret)).status_code == 200
    store.tokens.revoke(secret.split("_")[1], AT)
    refused = shut.get("/api/v1/jobs", headers=bearer(secret))
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "no_token")


REQUESTS = {
    Scope.READ: [("GET", "/api/v1/jobs", None), ("GET", "/api/v1/export", None), ("GET", "/api/v1/pulse", None)],
    Scope.REPORT: [
        ("POST", "/api/v1/jobs", {"spec": SPEC}),
        ("POST", "/api/v1/jobs/asr/ask", PLACE),
        ("POST", "/jobs", {**SPEC, "max_power": 250.0}),
        ("GET", "/jobs/batch_size?job_id=asr", None),
    ],
    Scope.ADMIN: [
        ("POST", "/api/v1/jobs/asr/pardon", {"batch_size": 8}),
        ("POST", "/api/v1/import", None),
        ("DELETE", "/jobs?job_id=asr", None),
    ],
}


def test_a_scope_reaches_what_it_is_for_and_no_further(shut: TestClient, store: MemoryStore) -> None:
    order = list(Scope)
    for needed, requests in REQUESTS.items():
        for held in order:
            headers = bearer(token(store, held))
            for method, path, body in requests:
                status = shut.request(method, path, json=body, headers=headers).status_code
                assert (status == 403) == (order.index(held) < order.index(needed)), (held, method, path, status)


def test_every_route_but_those_that_tell_nothing_needs_a_token(shut: TestClient) -> None:
    free = {"/healthz", "/readyz", "/login", "/logout", "/api/v1/me"}
    described = shut.get("/openapi.json").json()["paths"]
    for path, methods in described.items():
        for method in methods:
            if path not in free:
                answer = shut.request(method, path.replace("{number}", "1").replace("{job_id}", "asr"))
                assert answer.status_code == 401, (method, path, answer.text)
    assert len(described) > 20


def test_old_clients_give_their_token_in_the_address(store: MemoryStore) -> None:
    secret = token(store, Scope.REPORT)
    with live(store, Settings(open=False)) as address:
        there = address.replace("http://", f"http://:{secret}@")
        assert httpx.post(f"{there}/jobs", json={**SPEC, "max_power": 250.0}).status_code == 201
        assert httpx.get(f"{there}/jobs/batch_size", params={"job_id": "asr"}).json()["batch_size"] == 16
        wrong = httpx.post(f"{address.replace('http://', 'http://:wrong@')}/jobs", json={**SPEC, "max_power": 250.0})
        assert (wrong.status_code, list(wrong.json())) == (401, ["message"])
        anyone = base64.b64encode(f"any name:{secret}".encode()).decode()
        assert httpx.get(f"{address}/api/v1/jobs", headers={"Authorization": f"Basic {anyone}"}).status_code == 200


def test_an_open_service_needs_no_token_but_one_that_is_given_counts(client: TestClient, store: MemoryStore) -> None:
    assert client.get("/api/v1/me").json() == {"name": "anybody", "scope": "admin"}
    assert client.get("/api/v1/jobs", headers=bearer("wrong")).status_code == 401
    reader = bearer(token(store, Scope.READ))
    assert client.post("/api/v1/jobs/asr/ask", json=PLACE, headers=reader).status_code == 403


def test_a_secret_is_kept_as_a_hash(store: MemoryStore) -> None:
    secret = token(store, Scope.READ)
    (kept,) = store.tokens.all()
    assert secret.rpartition("_")[2] not in repr(kept)
    assert len(kept.hash) == 64
    assert secret not in "".join(store.export())


# ---------------------------------------------------------------------- the page's login


@pytest.mark.parametrize("secure", [False, True])
def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_can_use(store: MemoryStore, secure: bool) -> None:
    secret = token(store, Scope.READ)
    scheme = "https" if secure else "http"
    client = TestClient(create(store, Settings(open=False, secure=secure)), base_url=f"{scheme}://testserver")
    assert client.post("/login", json={"token": "wrong"}).status_code == 401
    assert client.get("/api/v1/jobs").status_code == 401
    answer = client.post("/login", json={"token": secret})
    flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert ("secure" in flags) is secure
    assert ("strict-transport-security" in answer.headers) is secure
    assert secret not in answer.text
    assert client.get("/api/v1/me").json() == {"name": "somebody who may read", "scope": "read"}
    assert client.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 403
    client.post("/logout")
    assert client.get("/api/v1/jobs").status_code == 401


def test_a_cookie_of_another_day_does_not_lock_anybody_out_of_an_open_service(client: TestClient) -> None:
    client.cookies.set(auth.COOKIE, "zeus_gone_gone")
    assert client.get("/api/v1/jobs").status_code == 200


# ---------------------------------------------------------------------- where a request comes from


def test_only_the_names_that_are_ours_are_served(store: MemoryStore) -> None:
    hosts = frozenset({"localhost", "127.0.0.1", "[::1]"})
    client = TestClient(create(store, Settings(hosts=hosts)))
    for host in ("localhost", "LOCALHOST:7070", "127.0.0.1:80", "[::1]:7070"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "", "[::1", "127.0.0.1.evil.example:7070"):
        assert client.get("/api/v1/jobs", headers={"Host": host}).status_code == 403, host


def test_pages_of_other_sites_are_not_served(client: TestClient) -> None:
    def status(method: str, path: str, **headers: str) -> int:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return client.request(method, path, json=PLACE if method == "POST" else None, headers=named).status_code

    ask = "/api/v1/jobs/asr/ask"
    for origin in ("http://evil.example", "null", "http://testserver.evil.example", "http://testserver:81", "http://["):
        assert status("POST", ask, Origin=origin) == 403, origin
    assert status("POST", ask, Origin="http://testserver") == 201
    assert status("POST", ask) == 201
    for site in ("cross-site", "same-site"):  # as for a picture whose address opens a trial
        assert status("GET", "/jobs/batch_size?job_id=asr", Sec_Fetch_Site=site) == 403
        assert status("GET", "/", Sec_Fetch_Site=site) == 200
    assert status("GET", "/api/v1/jobs", Sec_Fetch_Site="same-origin") == 200


def test_every_answer_says_that_it_is_not_to_be_framed_guessed_or_kept(client: TestClient) -> None:
    for path in ("/api/v1/jobs", "/api/v1/jobs/nobody", "/nothing", "/metrics"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers
    page = client.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in page
    assert "unsafe-eval" not in page


# ---------------------------------------------------------------------- how much


def test_a_body_that_is_too_large_is_refused_whether_it_is_announced_or_not(store: MemoryStore) -> None:
    megabytes = 50

    def pieces() -> Iterator[bytes]:
        yield b'{"spec": "'
        for _ in range(megabytes):
            yield b"x" * 1_000_000

    with live(store) as address:
        for content in (b"x" * (megabytes * 1_000_000), pieces()):
            for path in ("/api/v1/jobs", "/report"):
                try:
                    answer = httpx.post(f"{address}{path}", content=content, timeout=30)
                except httpx.WriteError:  # it hung up while we were still talking, which is as good
                    continue
                assert answer.status_code == 413
                assert "larger than 1000000 bytes" in answer.text
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_a_body_that_is_too_large_is_answered_with_413(store: MemoryStore) -> None:
    client = TestClient(create(store, Settings(body_bytes=1000, import_bytes=3000)))
    for content in (b"x" * 1001, iter([b"x" * 600, b"x" * 600])):
        answer = client.post("/api/v1/jobs", content=content)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
    assert client.post("/api/v1/import", content=b"x" * 2000).status_code == 422
    assert client.post("/api/v1/import", content=b"x" * 3001).status_code == 413
    assert client.post("/jobs", content=b"x" * 1001).json() == {"message": "the body is larger than 1000 bytes."}


def test_a_client_that_asks_too_often_is_told_to_slow_down(store: MemoryStore) -> None:
    client = TestClient(create(store, Settings(per_second=2)))
    answers = [client.get("/healthz") for _ in range(8)]
    assert answers[0].status_code == 200
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


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "1e300", "1e-300", '"1"', "[]"])
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
    wheres = {
        "/api/v1/jobs/asr/trials/1/tell": tell,
        "/report": report,
        "/api/v1/jobs/asr/profiled": epoch,
    }
    for path, text in wheres.items():
        for pair in ((number, "1"), ("1", number)):
            answer = raw(client, path, text % pair)
            assert answer.status_code == 422, (path, pair, answer.text)
    key = "/api/v1/jobs/asr/profiles?batch_size=8&gpu_model=V100&gpu_count=1"
    answer = client.put(key, content=profile % ("1", number), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    ask = raw(client, "/api/v1/jobs/asr/ask", f'{{"max_watts": {number}}}')
    beat = raw(client, "/api/v1/jobs/asr/trials/1/heartbeat", f'{{"so_far": null, "next_cost": {number}}}')
    assert ask.status_code == beat.status_code == 422
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
        ("/api/v1/jobs", {"spec": {**SPEC, "job_id": None, "job_id_prefix": name}}),
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
    assert (asked.status_code, asked.json()["ask"]["gpu_model"]) == (201, text)
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
    assert {job.id for job in store.jobs()} == {"asr", text, f"old {text}"}
    assert client.delete(path).status_code == 204


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

    def pulse(self) -> dict[str, str]:
        raise RuntimeError("the secret of the house")


class Away(MemoryStore):
    """Does not answer."""

    def pulse(self) -> dict[str, str]:
        raise StoreError("the store did not answer. Nothing was changed; try again.")


def test_no_stack_trace_reaches_a_client(caplog: pytest.LogCaptureFixture) -> None:
    client = TestClient(create(Broken()))
    answer = client.get("/api/v1/pulse")
    assert answer.status_code == 500
    assert answer.json() == {
        "error": {"code": "failed", "message": "this failed on the side of the service; its log says why."}
    }
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "the secret of the house" in caplog.text  # where its owner looks


def test_a_store_that_is_away_is_503_with_a_time_to_come_back() -> None:
    answer = TestClient(create(Away())).get("/readyz")
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
    assert secret.rpartition("_")[2] not in caplog.text
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
