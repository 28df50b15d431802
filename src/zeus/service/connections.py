"""One connection of the service: how many there may be, and how long each may keep the service waiting.

    connected ──▶ head of a request ──▶ body (`request_limits`) ──▶ answer ──▶ idle ──▶ head of the next
                  HEAD_SECONDS                                      READ_SECONDS    uvicorn's keep-alive

uvicorn closes idle connections, but its connection limit lets one client keep all others out. Here one client may hold
at most half of all connections. A head that never ends, or an answer that nobody reads, is cut off.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from functools import cache
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from zeus.errors import InputError

CONNECTIONS = 1000  # per worker
SHARE = 2  # one client may hold 1/SHARE of all connections
SAID = b'{"error": {"code": "too_many", "message": "too many connections. Try again."}}'
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(SAID), SAID)
)


class HttpConnection(H11Protocol):
    """A connection with deadlines. Named proxies may hold more than one client's share."""

    HEAD_SECONDS = 10.0  # from the first byte of a request, or from connecting, to the end of its headers
    READ_SECONDS = 60.0  # how long a client may leave an answer unread

    def __init__(self, *args: Any, most: int = CONNECTIONS, proxies: tuple[str, ...] = (), **named: Any) -> None:
        super().__init__(*args, **named)
        self._most, self._proxies = most, proxies
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Accept the connection, or answer 503 if there are too many."""
        super().connection_made(transport)
        # An answer is written in two pieces, and the second would wait up to 40 ms until the client confirms the first.
        # asyncio sets this itself, but not on a socket that several workers share.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._is_one_too_many():
            self.connections.discard(self)
            transport.write(FULL)
            transport.close()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Stop the deadline once the head of a request is complete."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head = self._stop(self._head)
        elif self._head is None:
            self._await_head()

    def pause_writing(self) -> None:
        """The client reads too slowly: begin its deadline."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again: stop the deadline."""
        super().resume_writing()
        self._unread = self._stop(self._unread)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection. Closing waits for unread data, so that gets a deadline too."""
        super().timeout_keep_alive_handler()
        self._unread = self._unread or self.loop.call_later(self.READ_SECONDS, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines."""
        super().connection_lost(exc)
        self._head, self._unread = self._stop(self._head), self._stop(self._unread)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.HEAD_SECONDS, self.transport.abort)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
        if timer is not None:
            timer.cancel()
        return None

    def _is_one_too_many(self) -> bool:
        if len(self.connections) > self._most:
            return True
        ours = sum(_host(one) == _host(self) for one in self.connections)
        return ours > self._most // SHARE and not is_proxy(_host(self), self._proxies)


def proxies_of(given: Iterable[str]) -> tuple[str, ...]:
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
                f"--proxy {one}: give an IP address or a network, such as 10.0.0.1 or 10.0.0.0/24."
            ) from None
    return named


@cache
def is_proxy(client: str, proxies: tuple[str, ...]) -> bool:
    """Whether a client's address belongs to a named proxy.

    >>> is_proxy("10.1.2.3", ("10.1.0.0/16",)), is_proxy("10.2.0.1", ("10.1.0.0/16",)), is_proxy("", ("::1",))
    (True, False, False)
    """
    try:
        return any(ipaddress.ip_address(client) in ipaddress.ip_network(one) for one in proxies)
    except ValueError:
        return False


def _host(connection: Any) -> str:
    return connection.client[0] if connection.client else ""
