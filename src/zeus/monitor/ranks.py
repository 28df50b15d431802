"""Several processes, one job: who counts what, so that nothing is counted twice.

Under a launcher (torchrun, accelerate, srun) every rank may make a monitor over all visible GPUs, and users sum over
ranks. Each rank therefore announces what it watches by holding a lock on a small file; a GPU (or the node's CPUs) is
counted by the lowest local rank that watches it. Locks go with their process: a crash leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

from zeus.device.ranks import Rank, rank

__all__ = ["CPUS", "Rank", "Roll", "rank"]

CPUS = "cpus"  # what the node's processors are called among the things watched


class Roll:
    """What this rank watches, and what a lower rank watches too."""

    def __init__(self, me: Rank, things: list[str], folder: Path | None = None) -> None:
        self._me = me
        base = folder or Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        key = hashlib.sha256(me.job.encode()).hexdigest()[:16]
        self._folder = base / f"zeus-{os.getuid()}" / "ranks" / key
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._held = [
            os.open(self._path(thing, me.local), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) for thing in things
        ]
        for file in self._held:
            fcntl.flock(file, fcntl.LOCK_SH)

    def _path(self, thing: str, local: int) -> Path:
        return self._folder / f"{thing}.{local}"

    def counted_by(self, thing: str) -> int:
        """The local rank that counts this thing: the lowest that watches it and is alive."""
        return next((r for r in range(self._me.local) if _is_locked(self._path(thing, r))), self._me.local)

    def mine(self, thing: str) -> bool:
        """Whether it is for this rank to count."""
        return self.counted_by(thing) == self._me.local

    def close(self) -> None:
        """Watch nothing any more."""
        while self._held:
            os.close(self._held.pop())


def _is_locked(path: Path) -> bool:
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False
