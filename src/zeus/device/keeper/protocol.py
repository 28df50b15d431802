"""The protocol between a client and a keeper: JSON over a unix socket of packets.

    client                                          keeper
    {"op": "hello", "zeus": 1}                      {"ok": true, "zeus": 1, "pid": 4711, "kind": "system"}
    {"op": "lease", "gpus": [...], "job": "asr"}    {"ok": true, "found": {"GPU-a": 250.0, "GPU-b": 250.0}}
    {"op": "set", "watts": {"GPU-a": 150.0}}        {"ok": true, "limits": {"GPU-a": 150.0}, "found": {...}}
    {"op": "release"}                               {"ok": true, "results": [{"ending": "restored", ...}]}
    {"op": "status", "gpus": ["GPU-a"]}             {"ok": true, "lent": [], "ranges": {"GPU-a": [100.0, 250.0]}, ...}
    anything else                                   {"ok": false, "error": "InputError", "message": "..."}

Each message is one packet, so the kernel keeps it whole and apart from the next. Each request gets one answer. An error
carries the name of its class in `zeus.errors`, and the client raises that class. The lease lasts as long as the
connection.

The client's end (`Channel`) never leaves the process that opened it. A forked child, such as a DataLoader worker,
inherits every descriptor. If it kept this one open, the keeper would not notice that the trainer died. So children
close it right after the fork. Some children are forked without Python's knowledge; for those, the keeper also watches
the trainer's process.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from pathlib import Path
from typing import Any, NoReturn

from zeus import errors, settings
from zeus.errors import InputError, KeeperLost, ZeusError
from zeus.fork import call_after_fork, no_fork

VERSION = 1
MAX_BYTES = 65536  # of a message; a lease on a thousand GPUs fits. The kernel cuts off what is longer
LEASE_SECONDS = 60.0  # the keeper may have to open the driver first, which is slow on a large machine


def failure(error: BaseException) -> bytes:
    """The answer to a request that failed."""
    ours = isinstance(error, ZeusError)
    name = type(error).__name__ if ours else "DeviceError"
    return encode({"ok": False, "error": name, "message": str(error) if ours else f"the keeper failed: {error!r}"})


def unpack(packet: bytes) -> dict[str, Any]:
    """The fields of a successful answer. Raises the keeper's error for a failed one."""
    match decode(packet):
        case {"ok": True, **fields}:
            return {str(name): value for name, value in fields.items()}
        case {"ok": False, "error": str(name), "message": str(message)}:
            kind = getattr(errors, name, None)
            raise (kind if isinstance(kind, type) and issubclass(kind, ZeusError) else ZeusError)(message)
        case _:
            raise InputError(f"this is not a keeper's answer: {packet[:200]!r}")


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, allow_nan=False).encode()


def decode(message: bytes) -> object:
    """The value of a message. Raises `InputError` if it is not JSON, which knows no NaN.

    >>> decode(b'{"op": "hello", "zeus": 1}')
    {'op': 'hello', 'zeus': 1}
    """
    try:
        return json.loads(message, parse_constant=_no_constant)
    except (ValueError, RecursionError) as e:
        raise InputError(f"this is not JSON: {message[:200]!r}") from e


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# ---------------------------------------------------------------------- the client's end

_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()  # a new one is added before any fork


def _close_sockets() -> None:
    for sock in list(_sockets):
        sock.close()


call_after_fork(_close_sockets)


def connect(path: Path) -> socket.socket:
    """Connect to the keeper at this path. Raises `OSError` if there is none."""
    with no_fork:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _sockets.add(sock)
    try:
        sock.settimeout(settings.time_limits().keeper_greeting)
        sock.connect(str(path))
    except BaseException:
        sock.close()
        raise
    return sock


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets: one for this process, one for a keeper that is about to start."""
    with no_fork:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _sockets.update((ours, theirs))
    return ours, theirs


class Channel:
    """Sends requests and waits for the answers, one thread at a time. Closed in a forked child."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self.keeper_pid = 0

    def greet(self, within: float | None = None) -> Channel:
        """Send hello, which opens every connection."""
        within = settings.time_limits().keeper_greeting if within is None else within
        self.keeper_pid = int(self.ask(within, op="hello", zeus=VERSION)["pid"])
        return self

    def ask(self, within: float | None = None, **request: Any) -> dict[str, Any]:
        """The keeper's answer. Raises the keeper's own errors, and `KeeperLost` if no answer comes in time."""
        within = settings.time_limits().keeper_answer if within is None else within
        if not self.is_mine:
            raise KeeperLost("the lease belongs to the process that took it, not to a child forked from it.")
        with self._lock:
            if self._sock.fileno() < 0:
                raise KeeperLost("the lease has ended, so limits can no longer be set through it.")
            try:
                self._sock.settimeout(within)
                self._sock.send(encode(request))
            except OSError:
                pass  # a keeper that refused may have closed the connection; its reason can still be read
            try:
                if not (answer := self._sock.recv(MAX_BYTES)):
                    raise ConnectionError("it closed the connection")
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
        return unpack(answer)  # outside the `try`: a refusal may be an OSError too, but the keeper is not lost

    @property
    def is_mine(self) -> bool:
        """Whether this process opened the connection."""
        return os.getpid() == self._owner

    def close(self) -> None:
        """End the connection, and with it the lease. Does not wait."""
        if self.is_mine:
            self._sock.close()
