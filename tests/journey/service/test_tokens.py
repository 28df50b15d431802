"""Who gets in: tokens and their scopes, the page's login, and where a request comes from."""

from __future__ import annotations

import base64
from datetime import datetime, timedelta

import httpx
import pytest
from starlette.testclient import TestClient

from support.live import AT, PLACE, SPEC, bearer, hidden, live, token
from support.waiting import PATIENCE_SECONDS
from zeus.errors import InputError
from zeus.service import auth
from zeus.service.app import Settings, create
from zeus.store import MemoryStore
from zeus.store.tokens import Scope


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
    assert shut.get("/api/v1/me", headers=bearer("x")).json()["scope"] is None
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
        ("POST", "/api/v1/jobs/asr/excuse", {"trials": [1]}),
    ],
    Scope.ADMIN: [
        ("POST", "/api/v1/import", None),
        ("GET", "/api/v1/audit", None),
        ("GET", "/api/v1/tokens", None),
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
    with live(store, Settings(open=False)) as address, httpx.Client(timeout=PATIENCE_SECONDS) as client:
        there = address.replace("http://", f"http://:{secret}@")
        assert client.post(f"{there}/jobs", json={**SPEC, "max_power": 250.0}).status_code == 201
        assert client.get(f"{there}/jobs/batch_size", params={"job_id": "asr"}).json()["batch_size"] == 16
        wrong = client.post(f"{address.replace('http://', 'http://:wrong@')}/jobs", json={**SPEC, "max_power": 250.0})
        assert (wrong.status_code, list(wrong.json())) == (401, ["message"])
        anyone = base64.b64encode(f"any name:{secret}".encode()).decode()
        assert client.get(f"{address}/api/v1/jobs", headers={"Authorization": f"Basic {anyone}"}).status_code == 200


def test_an_open_service_needs_no_token_but_one_that_is_given_counts(client: TestClient, store: MemoryStore) -> None:
    me = client.get("/api/v1/me").json()
    assert me == {"name": "anybody", "scope": "admin", "team": "", "owner_of_new_jobs": "", "by": "open"}
    assert client.get("/api/v1/jobs", headers=bearer("wrong")).status_code == 401
    reader = bearer(token(store, Scope.READ))
    assert client.post("/api/v1/jobs/asr/ask", json=PLACE, headers=reader).status_code == 403


def test_an_expired_token_is_refused_and_the_answer_says_so(shut: TestClient, store: MemoryStore) -> None:
    kept, secret = auth.new("ci", Scope.ADMIN, AT, lasts=timedelta(days=90))
    store.tokens.add(kept)
    refused = shut.get("/api/v1/jobs", headers=bearer(secret))
    assert refused.status_code == 401
    assert "this token expired on 2024-03-31 at 00:00 UTC. Make one with" in refused.json()["error"]["message"]
    assert "expired" in shut.post("/login", json={"token": secret}).json()["error"]["message"]
    assert isinstance(auth.check(store.tokens, secret, lambda: 1_704_100_000.0), auth.Person)  # in January 2024


def test_a_session_ends_when_its_token_expires(store: MemoryStore) -> None:
    kept, secret = auth.new("ci", Scope.READ, AT, lasts=timedelta(days=1))
    store.tokens.add(kept)
    begun = datetime.fromisoformat(AT).timestamp()
    session = auth.begin_session(store.tokens, secret, lambda: begun)
    assert isinstance(auth.check_session(store.tokens, session, lambda: begun + 3600), auth.Person)
    assert isinstance(auth.check_session(store.tokens, session, lambda: begun + 90_000), auth.Rejected)


def test_the_last_use_of_a_token_is_kept_to_the_minute(store: MemoryStore) -> None:
    secret, begun = token(store, Scope.READ), datetime.fromisoformat(AT).timestamp()
    uses = []
    for seconds in (0, 30, 59, 61):
        auth.check(store.tokens, secret, lambda seconds=seconds: begun + seconds)
        uses.append(store.tokens.all()[0].used_at)
    assert uses == [AT, AT, AT, "2024-01-01T00:01:01.000000+00:00"]


@pytest.mark.parametrize(("name", "team"), [("", ""), ("a/b", ""), ("a", "b/c"), ("a\nb", ""), ("anybody", "")])
def test_a_name_that_could_be_taken_for_another_gets_no_token(name: str, team: str) -> None:
    with pytest.raises(InputError, match=r"token (name|team)"):
        auth.new(name, Scope.READ, AT, team=team)


def test_a_secret_is_kept_as_a_hash(store: MemoryStore) -> None:
    secret = token(store, Scope.READ)
    (kept,) = store.tokens.all()
    assert hidden(secret) not in repr(kept)
    assert len(kept.hash) == 64
    assert secret not in "".join(store.export())


# ---------------------------------------------------------------------- the page's login


@pytest.mark.parametrize("secure", [False, True])
def test_a_login_sets_a_cookie_that_no_script_and_no_other_site_can_use(store: MemoryStore, secure: bool) -> None:
    secret = token(store, Scope.READ)
    scheme = "https" if secure else "http"
    client = TestClient(create(store, Settings(open=False)), base_url=f"{scheme}://testserver")
    assert client.post("/login", json={"token": "wrong"}).status_code == 401
    assert client.get("/api/v1/jobs").status_code == 401
    answer = client.post("/login", json={"token": secret})
    flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert ("secure" in flags) is secure
    assert ("strict-transport-security" in answer.headers) is secure
    assert secret not in answer.text
    me = client.get("/api/v1/me").json()
    assert (me["name"], me["scope"], me["by"]) == ("somebody who may read", "read", "session")
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
