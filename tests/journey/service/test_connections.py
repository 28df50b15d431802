"""How long and how often one client may keep the service waiting, while others go on."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.testclient import TestClient

from support.live import SPEC, bearer, live, token
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.service import request_limits
from zeus.service.app import Settings, create
from zeus.service.connections import HttpConnection
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

SOON = 0.2  # seconds, in place of ten or more
ELSEWHERE = "127.0.0.2"  # another client


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def head(length: int, path: str = "/api/v1/jobs") -> bytes:
    """Of a request with so long a body."""
    kind = f"Content-Type: application/json\r\nContent-Length: {length}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n".encode()


@contextmanager
def connected(address: str, sent: bytes = b"", client: str = "127.0.0.1") -> Iterator[socket.socket]:
    there = urlsplit(address)
    with socket.create_connection(
        (there.hostname, there.port), timeout=PATIENCE_SECONDS, source_address=(client, 0)
    ) as connection:
        connection.sendall(sent)
        yield connection


def heard(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def status(address: str, path: str = "/healthz") -> int:
    return httpx.get(f"{address}{path}", timeout=PATIENCE_SECONDS).status_code


# ---------------------------------------------------------------------- time


@pytest.mark.parametrize("begun", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_a_request_whose_head_does_not_end_is_hung_up_on(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(HttpConnection, "HEAD_SECONDS", SOON)
    with live(store) as address, connected(address, begun) as slow:
        assert heard(slow) == b""
        assert status(address) == 200


def test_bytes_that_drip_in_do_not_prolong_a_head(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpConnection, "HEAD_SECONDS", SOON)
    with live(store) as address, connected(address, b"GET /healthz HTTP/1.1\r\n") as slow:

        def is_cut() -> bool:
            try:
                slow.sendall(b"X-A: b\r\n")
            except OSError:
                return True
            return False

        eventually(is_cut)


def test_a_second_request_on_a_connection_has_the_same_time(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with live(store) as address, connected(address, whole) as slow:
        assert slow.recv(65_536).startswith(b"HTTP/1.1 200")
        monkeypatch.setattr(HttpConnection, "HEAD_SECONDS", SOON)
        slow.sendall(whole[:20])
        assert b"HTTP/1.1" not in heard(slow)


def test_a_body_that_comes_too_slowly_is_refused(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "BRIEF_SECONDS", 0.0)
    monkeypatch.setattr(request_limits, "DROPPED_SECONDS", SOON)
    with live(store, Settings(body_seconds=SOON)) as address, connected(address, head(1000) + b"{") as slow:
        said = heard(slow)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in said.lower()
    assert b"the body arrived too slowly" in said


def test_no_piece_of_an_answer_waits_until_the_one_before_is_confirmed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    real = HttpConnection.connection_made

    def connection_made(self: HttpConnection, transport: Any) -> None:
        real(self, transport)
        found.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(HttpConnection, "connection_made", connection_made)
    with live(store) as address:
        assert status(address) == 200
    assert found and all(found)


# ---------------------------------------------------------------------- the token comes first


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/import", "/jobs", "/report"])
def test_a_stranger_is_refused_before_the_body_is_read(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(request_limits, "BRIEF_SECONDS", 0.0)
    monkeypatch.setattr(request_limits, "DROPPED_SECONDS", SOON)
    with live(store, Settings(open=False)) as address, connected(address, head(1_000_000, path)) as stranger:
        assert heard(stranger).startswith(b"HTTP/1.1 401")  # of the body not a byte was sent


def test_what_a_stranger_sends_is_not_even_said_to_be_wrong(store: MemoryStore) -> None:
    client = TestClient(create(store, Settings(open=False)))
    for content in (b"{", b"{}", b'{"spec": 1}'):
        assert client.post("/api/v1/jobs", content=content).status_code == 401
    reader = bearer(token(store, Scope.READ))
    assert client.post("/api/v1/jobs", content=b"{", headers=reader).status_code == 403


def test_a_stranger_who_sends_much_reads_why_it_is_refused(store: MemoryStore) -> None:
    with live(store, Settings(open=False)) as address:
        answer = httpx.post(f"{address}/api/v1/import", content=b"x" * 20_000_000, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 401


# ---------------------------------------------------------------------- how many


def test_there_is_room_again_when_a_connection_ends(store: MemoryStore) -> None:
    with live(store, connections=4) as address, ExitStack() as held:
        for _ in range(4):
            held.enter_context(connected(address))
        eventually(lambda: _refused(address))
        held.close()
        eventually(lambda: not _refused(address))


def _refused(address: str) -> bool:
    try:
        return status(address) == 503
    except httpx.TransportError:
        return True


# ---------------------------------------------------------------------- whose address


def clients(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage().split()[0] for one in caplog.records if one.name == "zeus.service.requests"]


SAID = {"X-Forwarded-For": "9.9.9.9", "X-Forwarded-Proto": "https", "Forwarded": "for=8.8.8.8"}


def test_nobodys_word_for_an_address_is_taken(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "zeus.service.requests")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    secret = token(store, Scope.READ)
    with live(store) as address:
        httpx.get(f"{address}/healthz", headers=SAID, timeout=PATIENCE_SECONDS)
        login = httpx.post(f"{address}/login", json={"token": secret}, headers=SAID, timeout=PATIENCE_SECONDS)
    assert clients(caplog) == ["127.0.0.1", "127.0.0.1"]
    assert "secure" not in login.headers["set-cookie"].lower()


def test_that_of_a_named_proxy_is(store: MemoryStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zeus.service.requests")
    secret = token(store, Scope.READ)
    with live(store, proxies=("127.0.0.1",)) as address:
        httpx.get(f"{address}/healthz", headers=SAID, timeout=PATIENCE_SECONDS)
        login = httpx.post(f"{address}/login", json={"token": secret}, headers=SAID, timeout=PATIENCE_SECONDS)
        with connected(
            address, b"GET /healthz HTTP/1.1\r\nX-Forwarded-For: 9.9.9.9\r\nHost: a\r\n\r\n", ELSEWHERE
        ) as other:
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        eventually(lambda: len(clients(caplog)) == 3)
    assert clients(caplog) == ["9.9.9.9", "9.9.9.9", ELSEWHERE]
    assert "secure" in login.headers["set-cookie"].lower()
    assert "strict-transport-security" in login.headers


def test_the_rate_of_clients_behind_a_proxy_is_each_ones_own(store: MemoryStore) -> None:
    with live(store, Settings(per_second=1), proxies=("127.0.0.1",)) as address:

        def refused(client: str) -> bool:
            headers = {"X-Forwarded-For": client}
            return httpx.get(f"{address}/healthz", headers=headers, timeout=PATIENCE_SECONDS).status_code == 429

        eventually(lambda: refused("9.9.9.9"))
        assert not refused("9.9.9.8")


def test_a_job_is_registered_by_whoever_is_patient(store: MemoryStore) -> None:
    with live(store) as address:
        sent = json.dumps({"spec": SPEC}).encode()
        with connected(address, head(len(sent))) as patient:
            for at in range(0, len(sent), 10):
                patient.sendall(sent[at : at + 10])
            assert patient.recv(100).startswith(b"HTTP/1.1 201")
