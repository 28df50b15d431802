"""Closes the connection to a server that is silent for too long. Its driver would wait for ever.

The network notices a machine that is gone. But a server that is stopped, or whose disk hangs, still accepts data, so
only a time limit helps.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from zeus.fork import call_after_fork

LOOK_SECONDS = 0.5  # how long after its deadline a call may be noticed

_calls: dict[int, tuple[float, int]] = {}  # calls that wait for an answer: deadline and file descriptor
_numbers = itertools.count()
_lock = threading.Lock()
_watching: int | None = None  # the id of the process with the watching thread: a fork does not inherit it


@contextmanager
def hung_up_after(seconds: float, descriptor: int) -> Iterator[None]:
    """Shut down this socket if the block takes longer than `seconds`. Its driver then raises an error."""
    number = next(_numbers)
    with _lock:
        _calls[number] = time.monotonic() + seconds, descriptor
        _watch()
    try:
        yield
    finally:
        with _lock:
            _calls.pop(number, None)


def _begin_anew() -> None:
    """In a forked child: drop the parent's calls, and replace the lock, which may have been held at the fork."""
    global _lock
    _lock = threading.Lock()
    _calls.clear()


call_after_fork(_begin_anew)


def _watch() -> None:
    global _watching
    if _watching != os.getpid():
        threading.Thread(target=_look, name="zeus: silent servers", daemon=True).start()
        _watching = os.getpid()


def _look() -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        with _lock:  # so that no descriptor is closed and reused in between
            for number, (until, descriptor) in list(_calls.items()):
                if now > until:
                    del _calls[number]
                    _hang_up(descriptor)


def _hang_up(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)
