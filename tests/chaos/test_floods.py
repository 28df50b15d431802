"""Somebody floods a service behind nginx from one address. A training at another notices nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from support.live import PLACE, SPEC, bearer, live, token
from support.nginx import needs_nginx, nginx
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.service import request_limits
from zeus.service.app import Settings
from zeus.service.connections import HttpConnection
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

ATTACKER = "127.0.0.2"
CONNECTIONS = 64
HELD = 3 * CONNECTIONS  # connections that the attacker holds on to
SOON = 0.5  # seconds, in place of ten and more
SLOW = 5.0  # the same, where also the training on a busy machine must be in time
TRIALS = 20  # of a round
MEGABYTE = 1_000_000
MEMORY = 500 * MEGABYTE  # that may be added; a hundred huge bodies would be many times that


class Flood:
    """What one attacker does to an address. Whatever the service does to it is fine."""

    def __init__(self, address: str, dice: Random, secret: str) -> None:
        there = urlsplit(address)
        self._there = (there.hostname or "", there.port or 0)
        self._dice, self._secret = dice, secret
        self._open: deque[socket.socket] = deque()
        self.kinds: list[Callable[[], None]] = [
            self.connect_and_wait,
            self.drip_a_head,
            self.drip_a_body,
            self.send_much,
            self.send_pieces_without_end,
            self.never_read,
            self.send_noise,
            self.ask_many_at_once,
        ]

    def once(self) -> str:
        """One of these; its name."""
        kind = self._dice.choice(self.kinds)
        with contextlib.suppress(OSError):
            kind()
        return kind.__name__

    def close(self) -> None:
        while self._open:
            self._open.popleft().close()

    def _connect(self) -> socket.socket:
        made = socket.create_connection(self._there, timeout=5.0, source_address=(ATTACKER, 0))
        self._open.append(made)
        if len(self._open) > HELD:  # both ends are in this process, which may not have more files open than any other
            self._open.popleft().close()
        return made

    def _send(self, text: str) -> socket.socket:
        made = self._connect()
        made.sendall(text.encode())
        return made

    def _head(self, method: str = "POST", *more: str) -> str:
        paths = ("/api/v1/jobs", "/api/v1/import", "/jobs", "/login", "/metrics", "/healthz", "/nothing")
        known = [f"Authorization: Bearer {self._secret}"] if self._dice.random() < 0.5 else []
        lines = [f"{method} {self._dice.choice(paths)} HTTP/1.1", "Host: localhost", *known, *more]
        return "\r\n".join(lines) + "\r\n\r\n"

    def connect_and_wait(self) -> None:
        for _ in range(CONNECTIONS):
            self._connect()

    def drip_a_head(self) -> None:
        head = self._head("GET")
        self._send(head[: self._dice.randrange(1, len(head) - 1)])

    def drip_a_body(self) -> None:
        self._send(self._head("POST", f"Content-Length: {self._dice.choice((10, MEGABYTE))}") + "{")

    def send_much(self) -> None:
        size = self._dice.choice((2, 20)) * MEGABYTE
        made = self._send(self._head("POST", f"Content-Length: {size}"))
        for _ in range(size // MEGABYTE):
            made.sendall(b"x" * MEGABYTE)

    def send_pieces_without_end(self) -> None:
        made = self._send(self._head("POST", "Transfer-Encoding: chunked"))
        for _ in range(20):
            made.sendall(b"f4240\r\n" + b"x" * MEGABYTE + b"\r\n")

    def never_read(self) -> None:
        self._send("GET /static/plotly.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)

    def send_noise(self) -> None:
        made = self._connect()
        made.sendall(self._dice.randbytes(self._dice.choice((1, 100, 20_000, 200_000))))

    def ask_many_at_once(self) -> None:
        self._send(self._head("GET") * self._dice.randrange(2, 200))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time that a client has is short, so that a short test sees it pass."""
    monkeypatch.setattr(HttpConnection, "HEAD_SECONDS", SLOW)
    monkeypatch.setattr(request_limits, "DROPPED_SECONDS", SOON)


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@needs_nginx
@pytest.mark.usefixtures("impatient")
def test_a_training_goes_on_while_somebody_floods_the_service(chaos: Any, tmp_path: Path) -> None:
    store = MemoryStore()
    worker, reader = token(store, Scope.REPORT), token(store, Scope.READ)
    settings = Settings(open=False, body_seconds=SLOW, per_second=0)
    told: dict[int, float] = {}
    times = {"client_header_timeout": "5s", "client_body_timeout": "5s", "send_timeout": "1s"}
    with live(store, settings, proxies=("127.0.0.1",)) as service, nginx(tmp_path, service, **times) as address:
        flood, over = Flood(address, chaos.dice, reader), threading.Event()
        with httpx.Client(base_url=address, headers=bearer(worker), timeout=PATIENCE_SECONDS) as training:
            assert training.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 201
            attack = threading.Thread(target=_attack, args=(flood, over, chaos))
            attack.start()
            before = memory()
            try:
                while chaos.going():
                    for _ in range(TRIALS):
                        _train(chaos, training, told)
                    chaos.held(memory() - before < MEMORY, "the flood is kept in memory")
            finally:
                over.set()
                attack.join(PATIENCE_SECONDS)
            eventually(lambda: _is_served(address), lambda: "the attacker's connections are never let go")
            flood.close()
            kept = {one.trial.number: one.trial.outcome for one in store.trials("asr")}
            chaos.held(all(kept[number].joules == joules for number, joules in told.items()), "a report is lost")
            chaos.held(len(kept) == len(told), "a trial was opened that nobody asked for")


def _attack(flood: Flood, over: threading.Event, chaos: Any) -> None:
    while not over.is_set():
        chaos.count("floods")
        flood.once()


def _train(chaos: Any, training: httpx.Client, told: dict[int, float]) -> None:
    """One trial. Nothing is tried twice: the training is to notice nothing."""
    asked = training.post("/api/v1/jobs/asr/ask", json=PLACE)
    chaos.held(asked.status_code == 201, f"an ask was answered with {asked.status_code}: {asked.text[:200]}")
    number, joules = asked.json()["ask"]["number"], 100.0 + len(told)
    end = {"ending": "converged", "joules": joules, "seconds": 1.0, "epochs": 1, "metric": 0.9}
    answer = training.post(f"/api/v1/jobs/asr/trials/{number}/tell", json=end)
    chaos.held(answer.status_code == 200, f"a tell was answered with {answer.status_code}: {answer.text[:200]}")
    told[number] = joules
    chaos.count("requests", 2)
    chaos.count("trials")


def _is_served(address: str) -> bool:
    """Whether the attacker itself finds room again: all that it held was let go."""
    there = urlsplit(address)
    with contextlib.suppress(OSError), socket.create_connection(
        (there.hostname, there.port), timeout=PATIENCE_SECONDS, source_address=(ATTACKER, 0)
    ) as made:  # fmt: skip
        made.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return made.recv(100).startswith(b"HTTP/1.1 200")
    return False
