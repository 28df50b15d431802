"""How long tests wait: until a condition holds, and not for the time limits that a user has."""

from __future__ import annotations

import time
from collections.abc import Callable

from zeus.settings.types import TimeLimits

PATIENCE_SECONDS = 300.0  # many times what anything takes on a busy machine: only what hangs meets it


def eventually(is_so: Callable[[], bool], why_not: Callable[[], str] = lambda: "it never came to be") -> None:
    """Return once it is so; fail if it never is, and say why."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, why_not()
        time.sleep(0.01)


def limits(**seconds: float) -> str:
    """ZEUS_TIME_LIMITS for processes that shall have these fields of `TimeLimits`."""
    TimeLimits(**seconds)
    return " ".join(f"{name}={value}" for name, value in seconds.items())
