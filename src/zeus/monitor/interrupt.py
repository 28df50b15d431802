"""Ctrl-C as a flag to check, so that a watcher ends between two readings and not in the middle of one."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """An event that a signal handler can set.

    A `threading.Event` does not work here: the interrupted code may hold its lock.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._ready, self._tell = os.pipe()

    def set(self) -> None:
        """Set the event. Safe in a signal handler."""
        if not self._is_set:
            self._is_set = True
            os.write(self._tell, b".")

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait up to `seconds` for the event. Returns whether it is set."""
        select.select([self._ready], [], [], seconds)
        return self._is_set

    def close(self) -> None:
        os.close(self._ready)
        os.close(self._tell)


@contextmanager
def until_interrupted() -> Iterator[Interruption]:
    """An event that the first Ctrl-C sets. A second one interrupts as usual, in case a driver call hangs."""
    over = Interruption()

    def end(number: int, frame: FrameType | None) -> None:
        over.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield over
    finally:
        signal.signal(signal.SIGINT, before)
        over.close()
