"""Workers of Ray: those of a cluster, or of a Ray that is started on this machine for the purpose."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray import exceptions

from zeus import __version__
from zeus.errors import EngineError, InputError
from zeus.ray_address import first_line, look_for
from zeus.simulate.engine.shards import Answered, WorkerLost

Task = TypeVar("Task")
LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 128 * 2**20  # tasks and answers are small; Ray's default is a third of the memory
LOST = {
    exceptions.WorkerCrashedError: "its process ended unexpectedly",
    exceptions.OutOfMemoryError: "Ray ended it because its node ran out of memory",
    exceptions.NodeDiedError: "its node failed",
    exceptions.ObjectLostError: "its node failed before the answer was fetched",
}


@contextmanager
def ray_workers(address: str = "", workers: int | None = None) -> Iterator[RayWorkers]:
    """Connect to the Ray cluster at an address, or start one here, and leave it or end it afterwards.

    Args:
        address: As for `ray.init`. Empty: start a Ray on this machine that only listens on loopback.
        workers: How many tasks may run at once. None: as many as Ray has CPUs.

    Raises:
        EngineError: Ray cannot be reached or started.
    """
    before = signal.getsignal(signal.SIGTERM)
    # Whatever its settings, Ray prints a paragraph on stdout when a worker dies. We say it ourselves.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            _connect(address, workers)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's own handler would hide by which signal we ended
            yield RayWorkers(workers if address else None)
        finally:
            ray.shutdown()  # ends our workers, and a Ray that was started here


def _connect(address: str, workers: int | None) -> None:
    try:
        look_for(address)
    except OSError as failed:
        raise EngineError(
            f"no Ray cluster answers at {address} ({failed}). `ray status` on its head node tells the address."
        ) from failed
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if address:
            ray.init(address, **quiet)
        else:
            ray.init(
                "local",  # even if another Ray runs here
                num_cpus=workers,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address=LOOPBACK,
                **quiet,
            )
    except Exception as failed:  # Ray raises a plain Exception if it is not up after 30 s, as on a busy machine
        what = f"cannot connect to Ray at {address}" if address else "Ray cannot be started"
        raise EngineError(f"{what}: {first_line(failed)}") from failed


class RayWorkers:
    """Each task is a task of Ray with one CPU. Ray repeats nothing by itself.

    Args:
        most: How many tasks may run at once. None: as many as Ray has CPUs.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._remote = ray.remote(num_cpus=1, max_retries=0)(_answer)
        self._running: list[Any] = []

    @property
    def room(self) -> int:
        """Twice the CPUs that Ray has now: nodes may come and go."""
        return self._most or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))

    def start(self, function: Callable[[Task], object], task: Task) -> Hashable:
        ticket: Hashable = self._remote.remote(__version__, function, task)
        self._running.append(ticket)
        return ticket

    def ended(self) -> Sequence[tuple[Hashable, Answered | WorkerLost]]:
        over, self._running = ray.wait(self._running, num_returns=1)
        return [(ticket, _ending(ticket)) for ticket in over]


def _answer(version: str, function: Callable[[Task], object], task: Task) -> object:
    """What a worker of Ray runs."""
    if version != __version__:
        raise InputError(
            f"a node of the Ray cluster has Zeus {__version__}, and this machine has {version}. Their answers may "
            "differ: install the same version on all."
        )
    return function(task)


def _ending(ticket: Any) -> Answered | WorkerLost:
    try:
        return Answered(ray.get(ticket))
    except tuple(LOST) as lost:
        return WorkerLost(next(reason for kind, reason in LOST.items() if isinstance(lost, kind)))
    except exceptions.RayTaskError as failed:
        raise failed.cause from failed
    except exceptions.RayError as failed:
        raise EngineError(f"Ray failed: {first_line(failed)}") from failed
