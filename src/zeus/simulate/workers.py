"""Runs a pure function over many tasks: in this process, in several, or on Ray. The answers are the same.

Answers come in the order of the tasks. Tasks whose worker is lost are run again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, get_context, parent_process
from typing import Any, TypeAlias, TypeVar

from zeus.errors import EngineError, InputError
from zeus.lazy import require

Task = TypeVar("Task")
Answer = TypeVar("Answer")
Workers: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]  # `map` is one

LOCAL, RAY = "local", "ray"
FEW_RECURRENCES = 16_000  # starting processes takes longer than their replay
MOST_LOSSES = 3  # without an answer between them: more are no accident

log = logging.getLogger("zeus.simulate")


def spread(function: Callable[[Task], Answer], tasks: Sequence[Task], processes: int) -> Iterator[Answer]:
    """Yield the answer to each task from this many processes. With one, no process is started.

    Raises:
        EngineError: Processes end again and again.
        Exception: What the function raised.
    """
    if min(processes, len(tasks)) <= 1:
        yield from map(function, tasks)
        return
    futures: dict[int, Future[Answer]] = {}
    turn = losses = 0
    while turn < len(tasks):
        waiting = [n for n in range(turn, len(tasks)) if n not in futures or _is_lost(futures[n])]
        if losses:
            log.warning("a worker was lost. %d of %d tasks are run again or still to be run.", len(waiting), len(tasks))
        # Spawned, as a fork would copy the thread that draws the progress bar.
        executor = ProcessPoolExecutor(min(processes, len(waiting)), get_context("spawn"), _prepare)
        try:
            futures |= {n: executor.submit(function, tasks[n]) for n in waiting}
            while turn < len(tasks):
                answer = futures[turn].result()
                del futures[turn]
                yield answer
                turn, losses = turn + 1, 0
        except BrokenProcessPool as broken:
            losses += 1
            if losses > MOST_LOSSES:
                raise EngineError(
                    f"{losses} times in a row a process ended unexpectedly, after {turn} of {len(tasks)} tasks. "
                    "Perhaps the machine runs out of memory: use fewer workers. A script of your own that calls this "
                    "must do so below `if __name__ == '__main__':`."
                ) from broken
        finally:
            executor.shutdown(cancel_futures=True)


def _is_lost(future: Future[Any]) -> bool:
    return isinstance(future.exception(), BrokenProcessPool)


def _prepare() -> None:
    """In a new process: leave Ctrl-C to the parent, which ends its workers, and end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@dataclass(frozen=True, slots=True)
class Engine:
    """Where tasks run.

    Args:
        name: `local` or `ray`.
        address: Of a Ray cluster. Empty: a Ray of this machine, which starts and ends with the work.
    """

    name: str = LOCAL
    address: str = ""

    def open(self, workers: int | None, recurrences: int) -> AbstractContextManager[Workers]:
        """This many workers. None: as many as fit the number of recurrences to replay."""
        if self.name == LOCAL:
            processes = workers or (cores() if recurrences > FEW_RECURRENCES else 1)
            return nullcontext(partial(spread, processes=processes))
        from zeus.simulate.ray_workers import ray_workers

        return ray_workers(self.address, workers if self.address else workers or cores())


def parse(text: str) -> Engine:
    """Read the name of an engine.

    Raises:
        InputError: There is no such engine, or Ray is not installed.

    >>> parse("local")
    Engine(name='local', address='')
    """
    name, _, address = text.partition(":")
    if text == LOCAL:
        return Engine()
    if text != RAY and (name != RAY or not address.strip("/")):
        raise InputError(
            f"--engine {text!r} is not known. Give local, ray, or ray:ADDRESS with the address of a Ray cluster, such "
            "as ray:10.0.0.7:6379."
        )
    require(f"--engine {text}", "ray", "Ray", "ray")
    return Engine(RAY, text if address.startswith("//") else address)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))
