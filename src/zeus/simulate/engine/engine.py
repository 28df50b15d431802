"""The engines by name, as `--engine` takes them: `local`, `ray`, or `ray:ADDRESS`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

from zeus.errors import InputError
from zeus.lazy import require
from zeus.simulate.engine.local import local
from zeus.simulate.engine.shards import Workers

LOCAL, RAY = "local", "ray"
FEW_RECURRENCES = 16_000  # starting processes takes longer than their replay


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
            return local(workers or (cores() if recurrences > FEW_RECURRENCES else 1))
        from zeus.simulate.engine.ray_workers import ray_workers

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
