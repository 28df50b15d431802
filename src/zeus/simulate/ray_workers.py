"""Workers of Ray: those of a cluster, or of a Ray that is started on this machine for the purpose."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import exceptions

from zeus import __version__
from zeus.errors import EngineError, InputError
from zeus.ray_address import first_line, look_for
from zeus.simulate.workers import MOST_LOSSES, Workers

LOOPBACK = "127.0.0.1"
OBJECT_STORE_BYTES = 128 * 2**20  # tasks and answers are small; Ray's default is a third of the memory


@contextmanager
def ray_workers(address: str = "", workers: int | None = None) -> Iterator[Workers]:
    """Connect to the Ray cluster at an address, or start one here, and leave it or end it afterwards.

    Args:
        address: As for `ray.init`. Empty: start a Ray on this machine that only listens on loopback.
        workers: How many tasks may run at once. None: as many as Ray has CPUs.

    Raises:
        EngineError: Ray cannot be reached or started.
    """
    before = signal.getsignal(signal.SIGTERM)
    # Whatever its settings, Ray prints a paragraph on stdout when a worker dies.
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        try:
            _connect(address, workers)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)  # Ray's own handler would hide by which signal we ended
            yield partial(_answers, most=workers if address else None)
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


def _answers(function: Callable[[Any], Any], tasks: Sequence[Any], most: int | None) -> Iterator[Any]:
    """Each task is a task of Ray with one CPU, which Ray repeats when its worker is lost. At most `most` at once."""
    remote = ray.remote(num_cpus=1, max_retries=MOST_LOSSES)(_answer)
    tickets = deque[Any]()
    for task in tasks:
        if most is not None and len(tickets) >= most:
            yield _fetched(tickets.popleft())
        tickets.append(remote.remote(__version__, function, task))
    while tickets:
        yield _fetched(tickets.popleft())


def _answer(version: str, function: Callable[[Any], Any], task: Any) -> Any:
    """What a worker of Ray runs."""
    if version != __version__:
        raise InputError(
            f"a node of the Ray cluster has Zeus {__version__}, and this machine has {version}. Their answers may "
            "differ: install the same version on all."
        )
    return function(task)


def _fetched(ticket: Any) -> Any:
    try:
        return ray.get(ticket)
    except exceptions.RayTaskError as failed:
        raise failed.cause from failed
    except exceptions.RayError as failed:
        raise EngineError(f"a task failed on Ray, {MOST_LOSSES} retries included: {first_line(failed)}") from failed
