"""The page's cookie: a session that ends, and never the token itself."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from support.live import AT, bearer, hidden, token
from support.store_places import Place
from support.waiting import eventually
from zeus.service import auth
from zeus.service.app import Settings, create
from zeus.store import MemoryStore
from zeus.store.tokens import Scope, Token, TokenSession


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> TestClient:
    return TestClient(create(store, Settings(open=False)))


def test_the_cookie_is_not_the_token_and_no_token(client: TestClient, store: MemoryStore) -> None:
    secret = token(store, Scope.ADMIN)
    answer = client.post("/login", json={"token": secret})
    cookie = client.cookies[auth.COOKIE]
    assert hidden(secret) not in str(answer.headers)
    assert hidden(secret) not in cookie
    assert client.get("/api/v1/jobs").status_code == 200
    for given in (cookie, f"zeus_{secret.split('_')[1]}_{cookie}"):
        assert client.get("/api/v1/jobs", headers=bearer(given)).status_code == 401
    client.cookies.clear()
    client.cookies.set(auth.COOKIE, secret)  # and the token is no session
    assert client.get("/api/v1/jobs").status_code == 401


def test_a_logout_ends_the_session_wherever_its_cookie_went(client: TestClient, store: MemoryStore) -> None:
    client.post("/login", json={"token": token(store, Scope.READ)})
    copied = client.cookies[auth.COOKIE]
    client.post("/logout")
    client.cookies.set(auth.COOKIE, copied)
    assert client.get("/api/v1/jobs").status_code == 401


def test_a_session_ends_with_its_token(client: TestClient, store: MemoryStore) -> None:
    secret = token(store, Scope.READ)
    client.post("/login", json={"token": secret})
    store.tokens.revoke(secret.split("_")[1], AT)
    assert client.get("/api/v1/jobs").status_code == 401


IN = auth.Person("somebody who may read", Scope.READ, by="session")
OVER = auth.Rejected("the session has ended")


def test_a_session_ends_with_its_time_and_only_hashes_are_kept(store: MemoryStore) -> None:
    secret = token(store, Scope.READ)
    session = auth.begin_session(store.tokens, secret, lambda: 1000.0)
    assert auth.check_session(store.tokens, session, lambda: 1000.0 + auth.SESSION_SECONDS - 1) == IN
    assert auth.check_session(store.tokens, session, lambda: 1000.0 + auth.SESSION_SECONDS) == OVER
    assert auth.check_session(store.tokens, "x", lambda: 1000.0) == OVER
    assert store.tokens.session(session) is None


def test_sessions_are_kept_until_they_are_over(place: Place) -> None:
    tokens = place.open().tokens
    tokens.add(Token("a1", "me", Scope.READ, "h", "2024-01-01T00:00:00.000000+00:00"))
    short, long = (
        TokenSession(name, "a1", f"2024-01-0{day}T00:00:00.000000+00:00") for name, day in (("s", 2), ("l", 9))
    )
    tokens.begin(short, "2024-01-01T00:00:00.000000+00:00")
    tokens.begin(long, "2024-01-02T00:00:00.000000+00:00")
    assert (tokens.session("s"), place.open().tokens.session("l")) == (None, long)
    tokens.end("l")
    tokens.end("l")
    assert tokens.session("l") is None


def test_who_tries_tokens_at_the_login_is_told_to_wait(client: TestClient, store: MemoryStore) -> None:
    good = token(store, Scope.READ)
    assert client.post("/login", json={"token": good}).status_code == 200
    eventually(lambda: client.post("/login", json={"token": "zeus_a_b"}).status_code == 429)
    answer = client.post("/login", json={"token": good})
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many")
    assert int(answer.headers["retry-after"]) > 0
