"""How long the verbs of a store may wait, said by whoever calls them: for other writers, or for a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_seconds: ContextVar[float] = ContextVar("zeus_store_patience", default=float("inf"))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Verbs that are called within, in this thread, wait no longer than this.

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
    """How long a verb that waits so long by itself may wait here.

    >>> allowed(30.0)
    30.0
    """
    return min(usual, _seconds.get())
