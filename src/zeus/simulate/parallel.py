"""A pure function over many tasks, here or in several processes; the answers come in the order of the tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spread(function: Callable[[Task], Answer], tasks: Sequence[Task], processes: int) -> Iterator[Answer]:
    """Answers as they are ready."""
    if processes <= 1 or len(tasks) <= 1:
        yield from map(function, tasks)
        return
    quiet = (signal.SIGINT, signal.SIG_IGN)  # the parent ends them
    # Fresh processes: a fork would copy the thread that draws the progress bar.
    with ProcessPoolExecutor(min(processes, len(tasks)), get_context("spawn"), signal.signal, quiet) as pool:
        yield from pool.map(function, tasks)
