"""Decides which rank counts which GPU, so that nothing is counted twice.

Under a launcher (torchrun, accelerate, Lightning, srun, `torch.multiprocessing.spawn`) every rank may make a monitor
over all visible GPUs, and users sum over ranks. So each rank announces what it watches by locking a small file. The
lowest local rank that watches a GPU (or the node's CPUs) counts it. The kernel releases the locks of a process that
ends, so a crash leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from pathlib import Path

from zeus.device.ranks import Rank, connected, rank
from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError

log = logging.getLogger(__name__)

CPUS = "cpus"  # stands for the node's CPUs in a list of things to watch


class Roll:
    """What this rank watches, and whether a lower rank watches it too. A process on its own counts everything.

    Args:
        things: What is counted once over all ranks. Anything else always counts.
        folder: For the locks. Default: one that all processes of the user share.
    """

    FRESH = 1.0  # seconds for which a lower rank, once seen, is assumed to be alive; checking at each window is slow

    def __init__(self, things: list[str], folder: Path | None = None) -> None:
        self._things = things
        self._parent = folder
        self._me: Rank | None = None
        self._seen: dict[str, float] = {}
        self._held: list[int] = []
        self._join(rank() if things else None)

    def join(self) -> None:
        """Announce what this rank watches, if ranks were connected since: some are only after the monitor is made."""
        if self._me is None and self._things and connected() is not None:
            self._join(rank())

    def mine(self, thing: str) -> bool:
        """Whether this rank counts it: it is the lowest one alive that watches it."""
        self.join()
        if self._me is None or thing not in self._things:
            return True
        now = time.monotonic()
        if now - self._seen.get(thing, -self.FRESH) < self.FRESH:
            return False
        if not any(_is_locked(self._path(thing, lower)) for lower in range(self._me.local)):
            return True
        self._seen[thing] = now
        return False

    def close(self) -> None:
        """Stop watching."""
        while self._held:
            os.close(self._held.pop())

    def _join(self, me: Rank | None) -> None:
        if me is None:
            return
        self._me = me
        try:
            key = hashlib.sha256(me.job.encode()).hexdigest()[:16]
            self._folder = (self._parent or shared_folder()) / "ranks" / key
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for thing in self._things:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._held.append(os.open(self._path(thing, me.local), flags, 0o600))
                fcntl.flock(self._held[-1], fcntl.LOCK_SH)
        except (OSError, InputError) as why:
            self.close()
            self._me, self._things = None, []
            log.warning("The ranks cannot tell each other what they count, so each counts all that it watches: %s", why)

    def _path(self, thing: str, local: int) -> Path:
        return self._folder / f"{thing}.{local}"


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # nobody watches it; or too many files are open, which must not stop a training
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
