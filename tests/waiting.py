"""Waiting in tests: for what must come true, with a deadline and never with a guess."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0  # on a machine that is busy with something else too


def eventually(is_so: Callable[[], bool]) -> None:
    """Return once it is so; fail if it never is."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)
