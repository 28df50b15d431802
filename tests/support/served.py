"""A `zeus serve` process for a test. It can be stopped and started again on the same port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.job import Ending, Gpus, JobSpec, Outcome
from zeus.store import Store, open_store

V100 = Gpus("V100", 1, 250.0)
SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16, max_epochs=10)
DONE = Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=10.0, epochs=3, metric=0.9)


def outbox(url: str, folder: Path | None = None) -> Outbox:
    """What is told to the service at this address."""
    return Outbox(HttpJobs(Connection(url)), folder=folder)


def remote(url: str, folder: Path, spec: JobSpec = SPEC) -> RecurringJob:
    """A job over it."""
    return RecurringJob.register(ResilientJobs(outbox(url, folder)), spec)


class Served:
    """A store behind `zeus serve` at one address, up or down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._door = hold_port()
        self.port: int = self._door.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.database = f"sqlite:///{folder / 'served.db'}"
        self._process: subprocess.Popen[bytes] | None = None

    def up(self) -> Served:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "zeus.cli", "serve", "--port", str(self.port), "--store", self.database]
        with (self.folder / "serve.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        eventually(lambda: self._answers() or self._ended, self.lines)
        assert not self._ended, self.lines()
        return self

    @property
    def _ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE_SECONDS):
                return True
        except OSError:
            return False

    def down(self) -> None:
        """End it as an operator does."""
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(timeout=PATIENCE_SECONDS) in (0, -15), self.lines()
            self._process = None

    def close(self) -> None:
        """End it for good."""
        self.down()
        self._door.close()

    @property
    def store(self) -> Store:
        """What it serves, looked at from behind."""
        return open_store(self.database)

    def lines(self) -> str:
        """What it wrote."""
        return (self.folder / "serve.log").read_text()


def hold_port() -> socket.socket:
    """A port of loopback that nobody else is given while this is open: who connects is refused until a server listens.

    Both must allow the reuse of addresses, as every server does.
    """
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", 0))
    return door


class Heard(BaseHTTPRequestHandler):
    """A request that was read."""

    body: bytes


Answer = Callable[[Heard], None]


@contextmanager
def odd_service(answer: Answer) -> Iterator[str]:
    """Something that listens and answers each request in this way; its address."""

    class Handler(Heard):
        def _answer(self) -> None:
            self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
            answer(self)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def says(status: int, text: str, kind: str = "application/json", **headers: str) -> Answer:
    """An answer that is always the same."""

    def answer(request: Heard) -> None:
        body = text.encode()
        request.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return answer
