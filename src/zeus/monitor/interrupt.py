"""Ctrl-C as a fact to look at: whoever watches ends between two readings, never in the middle of one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that the first SIGINT sets; a second one interrupts as usual, should a driver call hang."""
    over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        over.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, end)
    try:
        yield over
    finally:
        signal.signal(signal.SIGINT, before)
