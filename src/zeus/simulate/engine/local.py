"""Workers on this machine: this process itself, or a pool of processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, get_context, parent_process
from typing import TypeVar

from zeus.simulate.engine.shards import Answered, WorkerLost, Workers, answers

Task = TypeVar("Task")
Answer = TypeVar("Answer")


def spread(function: Callable[[Task], Answer], tasks: Sequence[Task], workers: int | Workers) -> Iterator[Answer]:
    """Yield the answer to each task, in the order of the tasks. `workers` are open ones, or a number of processes."""
    if not isinstance(workers, int):
        yield from answers(function, tasks, workers)
        return
    with local(min(workers, len(tasks))) as opened:
        yield from answers(function, tasks, opened)


@contextmanager
def local(processes: int) -> Iterator[Workers]:
    """This many processes. With one, no process is started."""
    if processes <= 1:
        yield ThisProcess()
        return
    pool = ProcessPool(processes)
    try:
        yield pool
    finally:
        pool.close()


class ThisProcess:
    """Runs each task when its answer is asked for."""

    room = 1

    def start(self, function: Callable[[Task], object], task: Task) -> Hashable:
        self._run = partial(function, task)
        return 0

    def ended(self) -> Sequence[tuple[Hashable, Answered | WorkerLost]]:
        return [(0, Answered(self._run()))]


class ProcessPool:
    """Processes on this machine. If one dies, the executor gives up all of them, and the next task starts a new one."""

    def __init__(self, processes: int) -> None:
        self.room = 2 * processes
        self._processes = processes
        self._executor: ProcessPoolExecutor | None = None
        self._running: set[Future[object]] = set()

    def start(self, function: Callable[[Task], object], task: Task) -> Hashable:
        if self._executor is None:
            # Spawned, as a fork would copy the thread that draws the progress bar.
            self._executor = ProcessPoolExecutor(self._processes, get_context("spawn"), _prepare)
        try:
            future: Future[object] = self._executor.submit(function, task)
        except BrokenProcessPool as broken:  # a worker died since the last look
            future = Future()
            future.set_exception(broken)
        self._running.add(future)
        return future

    def ended(self) -> Sequence[tuple[Hashable, Answered | WorkerLost]]:
        over = wait(self._running, return_when=FIRST_COMPLETED).done
        if any(isinstance(one.exception(), BrokenProcessPool) for one in over):
            over = wait(self._running).done
            self.close()
        self._running -= over
        return [(one, _ending(one)) for one in over]

    def close(self) -> None:
        """End the processes. A task that runs is waited for; no other is begun."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)
            self._executor = None


def _ending(future: Future[object]) -> Answered | WorkerLost:
    try:
        return Answered(future.result())
    except BrokenProcessPool:
        return WorkerLost("a process ended unexpectedly")


def _prepare() -> None:
    """In a new process: leave Ctrl-C to the parent, which ends its workers, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
