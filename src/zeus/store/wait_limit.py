"""Lets a caller limit how long a store may wait for other writers or for a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_seconds: ContextVar[float] = ContextVar("zeus_store_patience", default=float("inf"))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Calls to a store inside this block, in this thread, wait no longer than this.

    >>> with at_most(3.0):
    ...     allowed(30.0)
    3.0
    """
    before = _seconds.set(min(seconds, _seconds.get()))
    try:
        yield
    finally:
        _seconds.reset(before)


def allowed(usual: float) -> float:
    """How long a call that would wait `usual` seconds may wait here.

    >>> allowed(30.0)
    30.0
    """
    return min(usual, _seconds.get())
