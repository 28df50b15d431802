"""The one place that acts on a fork. A forked child has none of its parent's threads, and their locks stay locked."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class Renewable(Protocol):
    """An object that owns locks or threads."""

    def after_fork(self) -> None:
        """Make new locks; no thread runs any more. Called in the child before anything else."""


no_fork = threading.Lock()  # held during a fork: nothing that a thread does while it holds this is half done in a child
_actions: list[Callable[[], None]] = []
_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()


def call_after_fork(action: Callable[[], None]) -> None:
    """Call this in each forked child."""
    _actions.append(action)


def renew_after_fork(thing: Renewable) -> None:
    """Call `thing.after_fork()` in each forked child, as long as the thing lives."""
    _renewables.add(thing)


def _in_child() -> None:
    no_fork.release()
    for action in _actions:
        action()
    for thing in list(_renewables):
        thing.after_fork()


os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_in_child)
