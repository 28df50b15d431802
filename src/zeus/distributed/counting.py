"""Decides which rank counts which GPU, so that nothing is counted twice.

Under a launcher (torchrun, accelerate, srun) every rank may make a monitor over all visible GPUs, and users sum over
ranks. So each rank announces what it watches by locking a small file. The lowest local rank that watches a GPU (or the
node's CPUs) counts it. The kernel releases the locks of a process that ends, so a crash leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
from pathlib import Path

from zeus.device.ranks import Rank, rank
from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError

__all__ = ["CPUS", "Rank", "Roll", "rank"]

log = logging.getLogger(__name__)

CPUS = "cpus"  # stands for the node's CPUs in a list of things to watch


class Roll:
    """What this rank watches, and whether a lower rank watches it too."""

    FRESH = 1.0  # seconds for which a lower rank, once seen, is assumed to be alive; checking at each window is slow

    def __init__(self, me: Rank, things: list[str], folder: Path | None = None) -> None:
        self._me = me
        key = hashlib.sha256(me.job.encode()).hexdigest()[:16]
        self._folder = (folder or shared_folder()) / "ranks" / key
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._seen: dict[str, float] = {}
        self._held: list[int] = []
        try:
            for thing in things:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._held.append(os.open(self._path(thing, me.local), flags, 0o600))
                fcntl.flock(self._held[-1], fcntl.LOCK_SH)
        except OSError:
            self.close()
            raise

    def _path(self, thing: str, local: int) -> Path:
        return self._folder / f"{thing}.{local}"

    def counted_by(self, thing: str) -> int:
        """The local rank that counts this thing: the lowest one alive that watches it."""
        return next((r for r in range(self._me.local) if _is_locked(self._path(thing, r))), self._me.local)

    def mine(self, thing: str) -> bool:
        """Whether this rank counts it."""
        now = time.monotonic()
        if now - self._seen.get(thing, -self.FRESH) < self.FRESH:
            return False
        if self.counted_by(thing) == self._me.local:
            return True
        self._seen[thing] = now
        return False

    def close(self) -> None:
        """Stop watching."""
        while self._held:
            os.close(self._held.pop())


def enrol(me: Rank | None, things: list[str]) -> Roll | None:
    """Announce what this rank watches. None for a process on its own, or if there is no folder for the locks."""
    if me is None:
        return None
    try:
        return Roll(me, things)
    except (OSError, InputError) as why:
        log.warning("The ranks cannot tell each other what they count, so each counts all that it watches: %s", why)
        return None


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
