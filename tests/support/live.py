"""The service on loopback, in a thread that ends with the `with` block, and the headers of its clients.

with live(MemoryStore()) as address:
    httpx.get(f"{address}/healthz")
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.service.app import Settings, create
from zeus.service.auth import new
from zeus.service.connections import CONNECTIONS
from zeus.service.server import admission
from zeus.store import Store
from zeus.store.tokens import Scope

AT = "2024-01-01T00:00:00.000000+00:00"
SPEC = {"job_id": "asr", "job_id_prefix": "asr", "batch_sizes": [8, 16, 32], "default_batch_size": 16}
PLACE = {"gpu_name": "V100", "gpus": 1, "max_watts": 250.0}


def token(store: Store, scope: Scope) -> str:
    """The secret of a new one."""
    kept, secret = new(f"somebody who may {scope}", scope, AT)
    store.tokens.add(kept)
    return secret


def hidden(secret: str) -> str:
    """What nobody else may learn of it. It may hold underscores of its own, so that its end alone can be any letter."""
    return secret.split("_", 2)[2]


def bearer(secret: str) -> dict[str, str]:
    """As programs send it."""
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def live(
    store: Store,
    settings: Settings | None = None,
    *,
    certificate: tuple[str, str] | None = None,
    proxies: tuple[str, ...] = (),
    connections: int = CONNECTIONS,
) -> Iterator[str]:
    """Its address, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        certfile, keyfile = certificate or (None, None)
        config = uvicorn.Config(
            create(store, settings),
            log_level="critical",
            ssl_certfile=certfile,
            ssl_keyfile=keyfile,
            timeout_graceful_shutdown=5,
            **admission(proxies, connections),
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        eventually(lambda: server.started or not thread.is_alive())
        assert server.started, "the service did not start"
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{door.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "the service does not end"
