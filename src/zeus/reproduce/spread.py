"""A pure function over many tasks, here or in several processes; the answers come in the order of the tasks."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spread(function: Callable[[Task], Answer], tasks: Sequence[Task], processes: int) -> Iterator[Answer]:
    """Answers as they are ready."""
    if processes <= 1 or len(tasks) <= 1:
        yield from map(function, tasks)
        return
    # Fresh processes: a fork would copy the thread that draws the progress bar.
    with multiprocessing.get_context("spawn").Pool(min(processes, len(tasks))) as pool:
        yield from pool.imap(function, tasks)
