"""Signals as a descriptor to wait for, so that a loop ends between two steps and not in the middle of one."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def stop_signal(*signals: signal.Signals, once: bool = False) -> Iterator[int]:
    """A descriptor that becomes, and stays, readable after one of these signals.

    A `threading.Event` does not work here: the interrupted code may hold its lock.

    Args:
        signals: The signals. They are unblocked, because the parent process may have blocked them.
        once: Whether the same signal acts as usual when it comes again, in case a driver call hangs.
    """
    ready, tell = os.pipe()
    os.set_blocking(tell, False)

    def stop(number: int, frame: FrameType | None) -> None:
        with suppress(OSError):
            os.write(tell, b".")
        if once:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

    before = {one: signal.signal(one, stop) for one in signals}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    try:
        yield ready
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        os.close(ready)
        os.close(tell)


def is_stopped(stop: int, within: float) -> bool:
    """Wait up to so many seconds until the descriptor is readable. Returns whether it is."""
    poll = select.poll()
    poll.register(stop, select.POLLIN)
    return bool(poll.poll(within * 1000))
