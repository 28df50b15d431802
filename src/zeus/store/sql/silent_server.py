"""Hangs up on a server that is silent for too long: its driver would wait for an answer without end.

A machine that is gone is noticed by the network. A server that is stopped, or whose disk hangs, still takes what is
sent to it, so that only a clock tells.
"""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LOOK_SECONDS = 0.5  # how late a silence may be noticed

_calls: dict[int, tuple[float, int]] = {}  # those that wait for an answer: until when, and by which descriptor
_numbers = itertools.count()
_lock = threading.Lock()
_watching: int | None = None  # the process in which somebody watches them: a fork has no threads


@contextmanager
def hung_up_after(seconds: float, descriptor: int) -> Iterator[None]:
    """What is waited for within, by this socket, ends with an error of its driver after so long."""
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
    """In a forked child: its parent's calls are not its own, and a lock that was held at the fork is never let go."""
    global _lock
    _lock = threading.Lock()
    _calls.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _watch() -> None:
    global _watching
    if _watching != os.getpid():
        threading.Thread(target=_look, name="zeus: silent servers", daemon=True).start()
        _watching = os.getpid()


def _look() -> None:
    while True:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        with _lock:  # so that nobody closes a descriptor, and another opens it, in between
            for number, (until, descriptor) in list(_calls.items()):
                if now > until:
                    del _calls[number]
                    _hang_up(descriptor)


def _hang_up(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as line:
        line.shutdown(socket.SHUT_RDWR)
