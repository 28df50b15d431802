"""Runs the application with uvicorn: in this process, or in several workers that share only the database."""

from __future__ import annotations

import ctypes
import json
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

from zeus import settings
from zeus.errors import InputError
from zeus.job import replace
from zeus.service.app import THREADS, Settings, create
from zeus.service.auth import is_loopback
from zeus.service.connections import CONNECTIONS, HttpConnection
from zeus.store import open_store

PR_SET_PDEATHSIG = 1
FILES = 500  # open files besides connections: the database, logs
PLAN = "ZEUS_SERVE_PLAN"  # passes the plan to workers, which are new processes


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What to serve, and where."""

    store: str
    host: str
    port: int
    workers: int = 1
    certfile: str | None = None
    keyfile: str | None = None
    proxies: tuple[str, ...] = ()  # whose X-Forwarded-For and X-Forwarded-Proto are trusted
    connections: int = CONNECTIONS  # per worker
    settings: Settings = field(default_factory=Settings)

    def to_json(self) -> str:
        """The plan as text for a worker."""
        told = asdict(self)
        told["settings"]["hosts"] = sorted(self.settings.hosts)
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> ServerPlan:
        """The plan that a worker was given."""
        told = json.loads(text)
        settings, proxies = told.pop("settings"), tuple(told.pop("proxies"))
        sets = {"hosts": frozenset(settings["hosts"]), "trusted_proxies": tuple(settings["trusted_proxies"])}
        return cls(**told, proxies=proxies, settings=Settings(**{**settings, **sets}))


def application() -> Any:
    """Make the application of a worker."""
    plan = ServerPlan.from_json(settings.HERE[PLAN])
    if plan.workers > 1:
        _end_with_parent()
    _log()
    return create(open_store(plan.store, connections=THREADS), replace(plan.settings, store_url=plan.store))


def serve(plan: ServerPlan) -> None:
    """Serve until a signal arrives. Requests that have begun are answered first."""
    import uvicorn

    settings.put({PLAN: plan.to_json()})
    _allow_files(plan.connections)
    shared = tempfile.mkdtemp(prefix="zeus-metrics-") if plan.workers > 1 else None
    if shared is not None:
        settings.put({"PROMETHEUS_MULTIPROC_DIR": shared})
    try:
        uvicorn.run(
            "zeus.service.server:application",
            factory=True,
            host=plan.host,
            port=plan.port,
            workers=plan.workers,
            ssl_certfile=plan.certfile,
            ssl_keyfile=plan.keyfile,
            log_level="warning",
            timeout_graceful_shutdown=10,
            timeout_worker_healthcheck=60,  # a worker on a busy machine is slow, not dead
            **admission(plan.proxies, plan.connections),
        )
    finally:
        if shared is not None:
            shutil.rmtree(shared, ignore_errors=True)


def admission(proxies: tuple[str, ...] = (), connections: int = CONNECTIONS) -> dict[str, Any]:
    """Options of uvicorn for connections. X-Forwarded headers count only when they come from a named proxy."""
    return {
        "http": HttpConnection,
        "limit_concurrency": connections,
        "ws": "none",
        "proxy_headers": bool(proxies),
        "forwarded_allow_ips": list(proxies),
        "access_log": False,
        "server_header": False,
    }


def hosts_of(host: str, more: tuple[str, ...]) -> frozenset[str]:
    """The host names that the service answers to. On a public address these are the given names, or any."""
    if not is_loopback(host):
        return frozenset(name.lower() for name in more)
    return frozenset({"localhost", "127.0.0.1", "[::1]", host.lower(), *(name.lower() for name in more)})


def check_free(plan: ServerPlan) -> None:
    """Check that the address is free, before the command says that it serves there.

    Raises:
        InputError: It is in use, or cannot be bound to.
    """
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    try:
        socket.create_server((plan.host, plan.port), family=family).close()
    except OSError as wrong:
        raise InputError(
            f"cannot listen on {plan.host}:{plan.port}: {wrong.strerror}. Give another --port or --host, or stop the "
            "program that uses it."
        ) from wrong


def address(plan: ServerPlan) -> str:
    """The address to open in a browser."""
    scheme = "https" if plan.certfile else "http"
    host = f"[{plan.host}]" if ":" in plan.host else plan.host
    return f"{scheme}://{host}:{plan.port}"


def _allow_files(connections: int) -> None:
    """Raise the limit on open files: each connection needs one, and shells set a low limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _end_with_parent() -> None:
    """End this worker with its parent. Otherwise it would keep the port from the next service."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        parent = multiprocessing.parent_process()
        if parent is not None and os.getppid() != parent.pid:  # the parent died before prctl took effect
            raise SystemExit(1)


def _log() -> None:
    """Log errors, and one line per request, on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    ours = logging.getLogger("zeus")
    ours.handlers[:] = [handler]
    ours.propagate = False
    logging.getLogger("zeus.service.requests").setLevel(logging.INFO)
