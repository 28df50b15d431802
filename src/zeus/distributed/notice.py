"""Lines on stderr for whoever runs a training, who sees no log."""

from __future__ import annotations

import contextlib
import sys

from zeus import settings
from zeus.device.ranks import is_first


def say(line: str) -> None:
    """Print a line on stderr, on the first rank and unless ZEUS_QUIET is set."""
    if is_first():
        say_here(line)


def say_here(line: str) -> None:
    """Print a line on stderr, on every rank that calls this and unless ZEUS_QUIET is set."""
    if not settings.quiet():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed, full or None
            sys.stderr.write(f"zeus: {line}\n")
