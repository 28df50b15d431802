"""Ctrl-C as a fact to look at: whoever watches ends between two readings, never in the middle of one."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Something to wait for that a signal handler may bring about.

    A `threading.Event` will not do: its lock may be held by the very code that the handler interrupts.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._ready, self._tell = os.pipe()

    def set(self) -> None:
        """It has come; to be called from a signal handler."""
        if not self._is_set:
            self._is_set = True
            os.write(self._tell, b".")

    def is_set(self) -> bool:
        """Whether it has come."""
        return self._is_set

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for it, for so long at most; whether it has come."""
        select.select([self._ready], [], [], seconds)
        return self._is_set

    def close(self) -> None:
        """Nobody waits any more."""
        os.close(self._ready)
        os.close(self._tell)


@contextmanager
def until_interrupted() -> Iterator[Interruption]:
    """What the first SIGINT sets; a second one interrupts as usual, should a driver call hang."""
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
