"""The service behind a real nginx with the example's settings: what a slow or greedy client cannot do."""

from __future__ import annotations

import logging
import socket
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from support.live import PLACE, SPEC, bearer, live, token
from support.nginx import needs_nginx, nginx
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.recurring import RecurringJob
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.service.app import Settings
from zeus.store import MemoryStore
from zeus.store.tokens import Scope

pytestmark = needs_nginx
PROXIES = ("127.0.0.1",)
GREEDY, OTHER = "127.0.0.2", "127.0.0.3"  # two clients


def connect(address: str, client: str, sent: bytes = b"") -> socket.socket:
    there = urlsplit(address)
    made = socket.create_connection((there.hostname, there.port), PATIENCE_SECONDS, source_address=(client, 0))
    made.sendall(sent)
    return made


def get(address: str, client: str, path: str = "/healthz") -> int:
    with httpx.Client(transport=httpx.HTTPTransport(local_address=client), timeout=PATIENCE_SECONDS) as http:
        return http.get(f"{address}{path}").status_code


def test_a_job_with_a_slash_in_its_name_recurs_behind_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zeus.service.requests")
    store = MemoryStore()
    secret = token(store, Scope.REPORT)
    hosts = frozenset({"127.0.0.1"})
    with (
        live(store, Settings(open=False, hosts=hosts), proxies=PROXIES) as service,
        nginx(tmp_path, service) as address,
    ):
        jobs = HttpJobs(Connection(address.replace("//", f"//:{secret}@")))
        spec = JobSpec(job_id="team/asr 1", job_id_prefix="asr", batch_sizes=[8, 16], default_batch_size=8)
        job = RecurringJob.register(jobs, spec)
        trial = job.ask(Gpus("V100", 1, 250.0))
        done = Outcome(ending=Ending.CONVERGED, joules=1.0, seconds=1.0, epochs=1)
        assert job.tell(trial.number, done).outcome == done
        jobs.close()
        assert get(address, OTHER) == 200
    assert store.trial("team/asr 1", trial.number).trial.outcome == done
    assert caplog.messages[-1].startswith(OTHER)  # the client, not the proxy


def test_one_client_cannot_take_all_connections(tmp_path: Path) -> None:
    with live(MemoryStore(), proxies=PROXIES) as service, ExitStack() as held:
        address = held.enter_context(nginx(tmp_path, service, limit_conn="zeus_clients 4"))
        body = b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"
        for _ in range(4):
            held.enter_context(connect(address, GREEDY, body))
        eventually(lambda: get(address, GREEDY) == 503)
        assert get(address, OTHER) == 200


@pytest.mark.parametrize(
    ("setting", "sent"),
    [
        ("client_header_timeout", b"GET /healthz HTTP/1.1\r\nX-Slow: "),
        ("client_body_timeout", b"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"),
        ("send_timeout", b"GET /static/plotly.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 4),
    ],
    ids=["head", "body", "answer"],
)
def test_a_client_that_sends_or_reads_too_slowly_is_cut_off(tmp_path: Path, setting: str, sent: bytes) -> None:
    with live(MemoryStore(), proxies=PROXIES) as service, nginx(tmp_path, service, **{setting: "1s"}) as address:
        with connect(address, GREEDY, sent) as slow:
            if setting == "send_timeout":
                error = (tmp_path / "error.log").read_text
                eventually(lambda: "client timed out" in error() or _is_cut(slow))
            else:
                assert b" 200 " not in _heard(slow)
        assert get(address, OTHER) == 200


def test_a_training_is_answered_while_a_client_holds_all_that_it_may(tmp_path: Path) -> None:
    store = MemoryStore()
    worker = bearer(token(store, Scope.REPORT))
    with live(store, Settings(open=False), proxies=PROXIES) as service, ExitStack() as held:
        address = held.enter_context(nginx(tmp_path, service))
        for _ in range(150):
            held.enter_context(connect(address, GREEDY, b"GET / HTTP/1.1\r\n"))
        with httpx.Client(base_url=address, headers=worker, timeout=PATIENCE_SECONDS) as training:
            assert training.post("/api/v1/jobs", json={"spec": SPEC}).status_code == 201
            assert training.post("/api/v1/jobs/asr/ask", json=PLACE).status_code == 201


def _heard(connection: socket.socket) -> bytes:
    found = b""
    while piece := connection.recv(65_536):
        found += piece
    return found


def _is_cut(connection: socket.socket) -> bool:
    try:
        connection.send(b"G")
    except OSError:
        return True
    return False
