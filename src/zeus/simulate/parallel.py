"""Runs a pure function over many tasks, in this process or in several. Answers come in the order of the tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spread(function: Callable[[Task], Answer], tasks: Sequence[Task], processes: int) -> Iterator[Answer]:
    """Yield the answer to each task. With one process or one task, no process is started."""
    if processes <= 1 or len(tasks) <= 1:
        yield from map(function, tasks)
        return
    quiet = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent, which ends the workers
    # Spawned, as a fork would copy the thread that draws the progress bar.
    with ProcessPoolExecutor(min(processes, len(tasks)), get_context("spawn"), signal.signal, quiet) as pool:
        yield from pool.map(function, tasks)
