"""The client's end of a connection to a keeper. It never leaves the process that opened it.

A forked child (such as a DataLoader worker) inherits every descriptor. If it kept this one open, the keeper would not
notice that the trainer died. So children close it right after the fork. Some children are forked without Python's
knowledge; for those, the keeper also watches the trainer's process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from zeus import env
from zeus.device.keeper import protocol
from zeus.errors import KeeperLost

LEASE_SECONDS = 60.0  # the keeper may have to open the driver first, which is slow on a large machine

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_opening = threading.Lock()  # held during a fork, and while a new socket is not yet in the set


def _close_in_child() -> None:
    _opening.release()
    for sock in list(_sockets):
        sock.close()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child)


def connect(path: Path) -> socket.socket:
    """Connect to the keeper at this path. Raises `OSError` if there is none."""
    with _opening:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _sockets.add(sock)
    try:
        sock.settimeout(env.time_limits().keeper_greeting)
        sock.connect(str(path))
    except BaseException:
        sock.close()
        raise
    return sock


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: one for this process, one for a keeper that is about to start."""
    with _opening:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _sockets.update((ours, theirs))
    return ours, theirs


class Channel:
    """Sends requests and waits for the answers, one thread at a time. Closed in a forked child."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lines = protocol.LineBuffer()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.keeper_pid = 0

    def greet(self, within: float | None = None) -> Channel:
        """Send hello, which opens every connection."""
        within = env.time_limits().keeper_greeting if within is None else within
        self.keeper_pid = int(self.ask(within, op="hello", zeus=protocol.VERSION)["pid"])
        return self

    def ask(self, within: float | None = None, **request: Any) -> dict[str, Any]:
        """The keeper's answer. Raises the keeper's own errors, and `KeeperLost` if no answer comes in time."""
        within = env.time_limits().keeper_answer if within is None else within
        if not self.is_mine:
            raise KeeperLost("the lease belongs to the process that took it, not to a child forked from it.")
        with self._lock:
            if self._sock.fileno() < 0:
                raise KeeperLost("the lease has ended, so limits can no longer be set through it.")
            try:
                self._sock.settimeout(within)
                self._sock.sendall(protocol.encode(request))
            except OSError:
                pass  # a keeper that refused may have closed the connection; its reason can still be read
            try:
                line = self._line(within)
            except TimeoutError as e:
                self._sock.close()
                raise KeeperLost(
                    f"the keeper did not answer within {within:g} s. It may be suspended (`kill -CONT` resumes it) or "
                    "hang in the driver. It restores limits when it goes on."
                ) from e
            except OSError as e:
                self._sock.close()
                raise KeeperLost(f"the keeper is gone ({e}). It restores limits when it starts again.") from e
            except BaseException as e:
                if not isinstance(e, Exception):  # interrupted: the next request would get this answer
                    self._sock.close()
                raise
        return protocol.unpack(line)  # outside the `try`: a refusal may be an OSError too, but the keeper is not lost

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the connection."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """End the connection, and with it the lease. Does not wait."""
        if self.is_mine:
            self._sock.close()

    def _line(self, within: float) -> bytes:
        deadline = time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            self._sock.settimeout(left)
            if not (data := self._sock.recv(protocol.MAX_LINE)):
                raise ConnectionError("it closed the connection")
            for line in self._lines.feed(data):
                return line
        raise TimeoutError("no answer in time")
