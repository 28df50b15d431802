"""One connection of the service: how long a client may take to send the head of a request.

    connected ──▶ head of a request ──▶ body (`request_limits`) ──▶ answer ──▶ idle ──▶ head of the next
                  HEAD_SECONDS                                                 uvicorn's keep-alive

How many connections one client has, and how slowly it reads, is the work of a proxy (`deploy/nginx/zeus.conf`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from zeus.errors import InputError
from zeus.service.proxy_sign_in import PEER

CONNECTIONS = 1000  # per worker


class HttpConnection(H11Protocol):
    """A connection whose requests must say within a time what they want."""

    HEAD_SECONDS = 10.0  # from the first byte of a request, or from connecting, to the end of its headers

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the deadline of the first head."""
        super().connection_made(transport)
        # An answer is written in two pieces, and the second would wait up to 40 ms until the client confirms the first.
        # asyncio sets this itself, but not on a socket that several workers share.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.app = _with_peer(self.app, self.client[0] if self.client else "")
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stop the deadline once the head of a request is complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._head is None:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        super().connection_lost(exc)
        self._stop()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.HEAD_SECONDS, self.transport.abort)

    def _stop(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


def _with_peer(app: Any, peer: str) -> Any:
    """The application, which is told who is at the other end. X-Forwarded-For does not change that."""

    async def told(scope: Any, receive: Any, send: Any) -> None:
        scope[PEER] = peer
        await app(scope, receive, send)

    return told


def proxies_of(given: Iterable[str], option: str = "--proxy") -> tuple[str, ...]:
    """Check the addresses and networks of proxies.

    >>> proxies_of(["10.0.0.1", "10.1.0.0/16"])
    ('10.0.0.1', '10.1.0.0/16')
    """
    named = tuple(given)
    for one in named:
        try:
            ipaddress.ip_network(one)
        except ValueError:
            raise InputError(
                f"{option} {one}: give an IP address or a network, such as 10.0.0.1 or 10.0.0.0/24."
            ) from None
    return named
