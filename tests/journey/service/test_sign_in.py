"""People who sign in through the company's proxy: a real nginx with passwords, and everybody who is not it."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import httpx
import pytest

from support.live import SPEC, bearer, live, token
from support.nginx import needs_nginx, nginx
from support.waiting import PATIENCE_SECONDS
from zeus.service.app import Settings
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

HEADER = "X-Forwarded-User"
PROXY = ("127.0.0.1",)


def settings(scope: str = "read", addresses: tuple[str, ...] = PROXY) -> Settings:
    return Settings(open=False, proxy_user_header=HEADER, trusted_proxies=addresses, proxy_scope=scope)


def htpasswd(folder: Path, **people: str) -> str:
    """A file of passwords that nginx reads without another library."""
    hashes = {name: base64.b64encode(hashlib.sha1(word.encode()).digest()).decode() for name, word in people.items()}
    file = folder / "htpasswd"
    file.write_text("".join(f"{name}:{{SHA}}{text}\n" for name, text in hashes.items()))
    file.chmod(0o644)
    return str(file)


def get(address: str, path: str = "/api/v1/me", **options: object) -> httpx.Response:
    return httpx.get(f"{address}{path}", timeout=PATIENCE_SECONDS, **options)  # type: ignore[arg-type]


@needs_nginx
def test_people_sign_in_with_the_passwords_of_nginx_and_own_what_they_register(tmp_path: Path) -> None:
    store, people = MemoryStore(), htpasswd(tmp_path, alice="secret", bob="other")
    with (
        live(store, settings("report"), proxies=PROXY) as service,
        nginx(tmp_path, service, "sign-in.conf", auth_basic_user_file=people) as address,
    ):
        assert get(address).status_code == 401, "nginx asks for a password"
        assert get(address, auth=("alice", "wrong")).status_code == 401
        alice = get(address, auth=("alice", "secret")).json()
        assert (alice["name"], alice["scope"], alice["by"]) == ("alice", "report", "proxy")
        forged = get(address, auth=("bob", "other"), headers={HEADER: "alice"}).json()
        assert forged["name"] == "bob", "nginx replaces what a client sends"
        with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
            client.auth = httpx.BasicAuth("alice", "secret")
            assert client.post("/api/v1/jobs", json={"spec": SPEC}).json()["owner"] == "alice"
            client.auth = httpx.BasicAuth("bob", "other")
            refused = client.patch("/api/v1/jobs/asr", json={"paused": True})
            assert refused.status_code == 403
            assert "belongs to alice" in refused.json()["error"]["message"]
    (entry,) = store.audit.read("asr").entries
    assert (entry.who, entry.action, entry.place) == ("alice", "registered", "127.0.0.1")


def test_the_header_counts_from_a_named_address_alone() -> None:
    store = MemoryStore()
    named = {HEADER: "alice"}
    with live(store, settings(addresses=("127.0.0.1/32",))) as service:
        assert get(service, headers=named).json()["name"] == "alice"
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as elsewhere:
            told = elsewhere.get(f"{service}/api/v1/me", headers=named, timeout=PATIENCE_SECONDS)
            assert told.json()["name"] is None
            assert elsewhere.get(f"{service}/api/v1/jobs", headers=named).status_code == 401


def test_an_address_that_the_client_claims_does_not_make_it_the_proxy() -> None:
    claims = {HEADER: "alice", "X-Forwarded-For": "10.0.0.1"}
    with live(MemoryStore(), settings(addresses=("10.0.0.1",)), proxies=PROXY) as service:
        assert get(service, headers=claims).json()["name"] is None


def test_a_token_goes_before_the_proxys_name_and_a_password_does_not() -> None:
    store = MemoryStore()
    secret = token(store, Scope.ADMIN)
    with live(store, settings()) as service:
        assert get(service, headers={HEADER: "alice", **bearer(secret)}).json()["scope"] == "admin"
        told = get(service, headers={HEADER: "alice"}, auth=("alice", "her password"))
        assert (told.json()["name"], told.json()["scope"]) == ("alice", "read")
        assert get(service, headers={HEADER: "alice", **bearer("zeus_wrong_one")}).json()["name"] is None


@pytest.mark.parametrize("name", ["vision/alice", "a" * 201])
def test_a_name_that_could_be_taken_for_a_team_is_refused(name: str) -> None:
    with live(MemoryStore(), settings()) as service:
        refused = get(service, "/api/v1/jobs", headers={HEADER: name})
        assert refused.status_code == 401
        assert f"the proxy's header {HEADER}" in refused.json()["error"]["message"]


def test_two_names_are_none() -> None:
    with live(MemoryStore(), settings()) as service:
        assert get(service, headers=[(HEADER, "alice"), (HEADER, "bob")]).json()["name"] is None


def test_without_a_name_an_open_service_stays_open_and_a_shut_one_shut() -> None:
    with live(MemoryStore(), settings()) as service:
        assert get(service, "/api/v1/jobs").status_code == 401
        assert get(service, "/api/v1/jobs", headers={HEADER: ""}).status_code == 401
