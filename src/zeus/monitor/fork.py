"""Renews objects in a forked child, where their threads are gone and those threads' locks stay locked."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """An object that owns locks or threads."""

    def after_fork(self) -> None:
        """Make new locks; no thread runs any more. Called in the child before anything else."""


_renewables: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_after_fork(thing: Renewable) -> None:
    """Call `thing.after_fork()` in each forked child, as long as the thing lives."""
    _renewables.add(thing)


def _in_child() -> None:
    for thing in list(_renewables):
        thing.after_fork()


os.register_at_fork(after_in_child=_in_child)
