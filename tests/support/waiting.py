"""Waits in tests until a condition holds, with a deadline instead of a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0  # many times what anything takes on a busy machine: only what hangs meets it


def eventually(is_so: Callable[[], bool], why_not: Callable[[], str] = lambda: "it never came to be") -> None:
    """Return once it is so; fail if it never is, and say why."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, why_not()
        time.sleep(0.01)
