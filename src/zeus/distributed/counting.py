"""Decides which rank counts which GPU, so that nothing is counted twice.

Under a launcher (torchrun, accelerate, Lightning, srun, `torch.multiprocessing.spawn`) every rank may make a monitor
over all visible GPUs, and users sum over ranks. So there is a small file for each GPU (and one for the node's CPUs),
and each rank that watches it locks the byte with the rank's number. The lowest local rank that watches a GPU counts
it. The kernel releases the locks of a process that ends, so a crash leaves nothing behind. It also tells whether a
lower byte is locked without locking anything, so ranks that ask at the same time do not see each other.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import struct
from pathlib import Path

from zeus.device.ranks import Rank, connected, rank, shared_folder
from zeus.files import open_shared

log = logging.getLogger(__name__)

CPUS = "cpus"  # stands for the node's CPUs in a list of things to watch


class CountingLocks:
    """What this rank watches, and whether a lower rank watches it too. A process on its own counts everything.

    Args:
        things: What is counted once over all ranks. Anything else always counts.
        folder: For the locks. Default: one that all processes of the user share.
    """

    def __init__(self, things: list[str], folder: Path | None = None) -> None:
        self._things = things
        self._parent = folder
        self._me: Rank | None = None
        self._held: dict[str, int] = {}  # the open file of each thing
        self._at_close: dict[str, bool] = {}  # the last answers, for windows that end later
        self._join(rank() if things else None)

    def join(self) -> None:
        """Announce what this rank watches, if ranks were connected since: some are only after the monitor is made."""
        if self._me is None and self._things and connected() is not None:
            self._join(rank())

    def counts(self, thing: str) -> bool:
        """Whether this rank counts it: it is the lowest one alive that watches it."""
        self.join()
        if self._me is None or thing not in self._things:
            return True
        file = self._held.get(thing)
        return self._at_close[thing] if file is None else not _is_locked_below(file, self._me.local)

    def close(self) -> None:
        """Stop watching."""
        self._at_close |= {thing: self.counts(thing) for thing in self._held}
        while self._held:
            os.close(self._held.popitem()[1])

    def _join(self, me: Rank | None) -> None:
        if me is None:
            return
        self._me = me
        try:
            key = hashlib.sha256(me.job.encode()).hexdigest()[:16]
            folder = (self._parent or shared_folder()) / "ranks" / key
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for thing in self._things:
                file = open_shared(folder / thing)
                self._held[thing] = file
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, me.local, 1, 0))
        except OSError as why:
            self._things = []
            self.close()
            self._me = None
            log.warning("The ranks cannot tell each other what they count, so each counts all that it watches: %s", why)


_LOCK = struct.Struct("hhqqi0q")  # `struct flock`: kind, whence, first byte, how many (0: all after it), process


def _is_locked_below(file: int, byte: int) -> bool:
    """Whether anybody holds a lock of a byte before this one."""
    if byte == 0:
        return False
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, byte, 0)
    kind, *_ = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
    return bool(kind != fcntl.F_UNLCK)
