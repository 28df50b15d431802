"""What a forked child must renew: threads do not come along, and a lock that one of them held is held for ever."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """Something with locks or threads of its own."""

    def after_fork(self) -> None:
        """Make new locks, and know that no thread runs; called in the child before anything else runs there."""


_known: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """From now on `thing.after_fork()` is called in each forked child, as long as the thing lives."""
    _known.add(thing)


def _in_child() -> None:
    for thing in list(_known):
        thing.after_fork()


os.register_at_fork(after_in_child=_in_child)
