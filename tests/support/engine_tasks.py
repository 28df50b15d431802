"""Functions for the workers of an engine to run. They are in a module, so that other processes find them."""

from __future__ import annotations

import os
import signal
from pathlib import Path


def square(number: int) -> int:
    return number * number


def refuse(number: int) -> int:
    """Answers all but 7."""
    if number == 7:
        raise ZeroDivisionError("7 is not for me")
    return number


def die_once(task: tuple[str, int]) -> int:
    """The first time that this task is run, its worker is killed."""
    folder, number = task
    before = Path(folder) / str(number)
    if not before.exists():
        before.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def die(number: int) -> int:
    """The worker is killed every time."""
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number
