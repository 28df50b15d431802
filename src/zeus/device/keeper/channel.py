"""A client's end of a connection to a keeper, which never leaves the process that opened it.

A forked child (a DataLoader worker, say) inherits every descriptor. Were it to keep this one open, the keeper would
not hear of the trainer's death. So children close it at birth; and the keeper watches the trainer's process as well,
for those that are forked behind Python's back.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from zeus.device.keeper import protocol
from zeus.errors import KeeperLost

GREET_SECONDS = 5.0  # a keeper that runs says hello at once: it needs no driver for that
ANSWER_SECONDS = 10.0  # setting the limits of a whole machine takes a second or two
LEASE_SECONDS = 60.0  # a lease may have to open the driver first, which takes long on a large machine

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
_opening = threading.Lock()  # held while a socket exists that is not yet in the set, and while forking


def _close_in_child() -> None:
    _opening.release()
    for sock in list(_sockets):
        sock.close()


os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_close_in_child)


def connect(path: Path) -> socket.socket:
    """Connect to the keeper that serves this socket; an OSError where none does."""
    with _opening:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _sockets.add(sock)
    try:
        sock.settimeout(GREET_SECONDS)
        sock.connect(str(path))
    except BaseException:
        sock.close()
        raise
    return sock


def pair() -> tuple[socket.socket, socket.socket]:
    """Two ends, one of them for a keeper that is about to be started."""
    with _opening:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _sockets.update((ours, theirs))
    return ours, theirs


class Channel:
    """Asks, and waits for the answer. One thread at a time; in a forked child it is closed."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lines = protocol.LineBuffer()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.keeper_pid = 0

    def greet(self, within: float = GREET_SECONDS) -> Channel:
        """Say hello; what every conversation begins with."""
        self.keeper_pid = int(self.ask(within, op="hello", zeus=protocol.VERSION)["pid"])
        return self

    def ask(self, within: float = ANSWER_SECONDS, **request: Any) -> dict[str, Any]:
        """The keeper's answer; its errors are raised as its own, and KeeperLost where none comes in these seconds."""
        if not self.is_mine:
            raise KeeperLost("the lease belongs to the process that took it, not to a child forked from it.")
        with self._lock:
            if self._sock.fileno() < 0:
                raise KeeperLost("the lease has ended; limits can no longer be set through it.")
            try:
                self._sock.settimeout(within)
                self._sock.sendall(protocol.encode(request))
            except OSError:
                pass  # a keeper that refuses may have hung up already; its reason is still to be read
            try:
                line = self._line(within)
            except TimeoutError as e:
                self._sock.close()
                raise KeeperLost(
                    f"the keeper did not answer within {within:g} s. It may be stopped (`kill -CONT` lets it go on) or "
                    "hang in the driver. It puts limits back when it goes on."
                ) from e
            except OSError as e:
                self._sock.close()
                raise KeeperLost(f"the keeper went away ({e}). It puts limits back when it starts again.") from e
            except BaseException as e:
                if not isinstance(e, Exception):  # interrupted: the answer to this would be taken for the next one's
                    self._sock.close()
                raise
        return protocol.unpack(line)  # a refusal is an OSError too, and not the keeper's end

    @property
    def is_mine(self) -> bool:
        """Whether this is the process that opened the connection."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """End the connection, and with it the lease. Does not wait for anything."""
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
