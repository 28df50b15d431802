"""The service, live on loopback, in a thread of its own; it ends with its `with`.

with live(MemoryStore()) as address:
    httpx.get(f"{address}/healthz")
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from zeus.service.app import Settings, create
from zeus.store import Store

WAIT_SECONDS = 30


@contextmanager
def live(
    store: Store, settings: Settings | None = None, *, certificate: tuple[str, str] | None = None
) -> Iterator[str]:
    """Its address, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        certfile, keyfile = certificate or (None, None)
        config = uvicorn.Config(
            create(store, settings),
            log_level="critical",
            access_log=False,
            ssl_certfile=certfile,
            ssl_keyfile=keyfile,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([door],), daemon=True)
        thread.start()
        deadline = time.monotonic() + WAIT_SECONDS
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            assert time.monotonic() < deadline, "the service takes too long to start"
            time.sleep(0.01)
        try:
            yield f"{'https' if certificate else 'http'}://127.0.0.1:{door.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive(), "the service does not end"
