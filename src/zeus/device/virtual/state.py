"""The state of virtual cards, in a small file that several processes can share.

Like hardware, a file that ZEUS_VIRTUAL_STATE names survives the processes that use it, and a reboot resets it. Without
that variable a process has a file of its own, which ends with it. A change is one write to the file's first page, which
a kill does not divide, so there is always a complete state. The lock is `flock`, which the kernel releases when its
holder dies.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from zeus import settings
from zeus.device.ranks import rank, shared_folder
from zeus.errors import InputError
from zeus.files import boot_id, locked, open_shared
from zeus.fork import renew_after_fork

MAX_CARDS = 16


@dataclass(frozen=True, slots=True)
class CardState:
    """One card. It had used `joules` at `since`, draws `busy_watts` from then until `busy_until`, and then idles."""

    limit_watts: float
    joules: float = 0.0
    since: float = 0.0
    busy_watts: float = 0.0
    busy_until: float = 0.0
    persistence: bool = False
    lost: bool = False

    def joules_at(self, moment: float, idle_watts: float) -> float:
        """Joules used up to this moment."""
        busy = max(0.0, min(moment, self.busy_until) - self.since)
        idle = max(0.0, moment - max(self.since, self.busy_until))
        return self.joules + self.busy_watts * busy + idle_watts * idle

    def busy(self, begin: float, seconds: float, watts: float, idle_watts: float) -> CardState:
        """The card with work from `begin` on, in place of any that it has."""
        joules = self.joules_at(begin, idle_watts)
        return replace(self, joules=joules, since=begin, busy_watts=watts, busy_until=begin + seconds)

    def watts_at(self, moment: float, idle_watts: float) -> float:
        return self.busy_watts if moment < self.busy_until else idle_watts


@dataclass(slots=True)
class MachineState:
    """All cards, and the virtual clock (unused if the cards run in real time)."""

    cards: list[CardState]
    now: float = 0.0


class MemoryState:
    """The state of a machine that only this process sees."""

    def __init__(self, fresh: MachineState) -> None:
        self._state = fresh
        self._lock = threading.RLock()

    def read(self) -> MachineState:
        """The last complete state, which must not be changed."""
        return self._state

    @contextmanager
    def change(self) -> Iterator[MachineState]:
        """`with holder.change() as state: ...`, one at a time among all who share it. Not saved if the block raises."""
        with self._lock:
            state = MachineState(list(self._state.cards), self._state.now)
            yield state
            self._state = state


_MAGIC, _FORMAT = b"ZEUSVGPU", 2
_HEADER = struct.Struct("<8sB3x36s32s")  # magic, format, boot id, what the cards are
_BODY = struct.Struct("<dI")  # the clock, how many cards follow
_KIND = 32  # bytes of it
_CARD = struct.Struct("<ddddd??")
_SIZE = _HEADER.size + _BODY.size + MAX_CARDS * _CARD.size


class FileState(MemoryState):
    """A state in a file, shared by all processes that name the same file."""

    def __init__(self, path: Path, cards: str, fresh: MachineState) -> None:
        super().__init__(fresh)
        self._path = path
        self._file = -1
        self._depth = 0  # of nested changes; the outermost one locks the file
        self._header = _HEADER.pack(_MAGIC, _FORMAT, _boot_id(), cards.encode())
        renew_after_fork(self)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            found = os.pread(self._file, _HEADER.size, 0)
            if found and not found.startswith(_MAGIC):
                raise InputError(
                    f"{path} is not a state file of virtual cards. Set ZEUS_VIRTUAL_STATE to another file."
                )
            same_boot = found[:-_KIND] == self._header[:-_KIND]
            if same_boot and found != self._header:
                kind = found[-_KIND:].rstrip(b"\0").decode(errors="replace")
                raise InputError(
                    f"{path} holds the cards '{kind}', not '{cards}'. "
                    "Set ZEUS_VIRTUAL_STATE to another file, or remove this one."
                )
            if not same_boot:
                self._write(fresh)

    def read(self) -> MachineState:
        with self._locked():
            return self._read()

    @contextmanager
    def change(self) -> Iterator[MachineState]:
        with self._locked():
            state = self._read()
            yield state
            self._write(state)

    def _read(self) -> MachineState:
        data = os.pread(self._file, _SIZE, 0)
        now, count = _BODY.unpack_from(data, _HEADER.size)
        begin = _HEADER.size + _BODY.size
        at = range(begin, begin + count * _CARD.size, _CARD.size)
        return MachineState([CardState(*_CARD.unpack_from(data, i)) for i in at], now)

    def _write(self, state: MachineState) -> None:
        cards = (
            _CARD.pack(c.limit_watts, c.joules, c.since, c.busy_watts, c.busy_until, c.persistence, c.lost)
            for c in state.cards
        )
        os.pwrite(self._file, b"".join((self._header, _BODY.pack(state.now, len(state.cards)), *cards)), 0)

    def after_fork(self) -> None:
        """Open the file again. A forked child shares its parent's lock, so they would not exclude each other."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._depth, self._lock = -1, 0, threading.RLock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._file < 0:
                if self._path.is_dir():
                    raise InputError(f"{self._path} is a folder. Set ZEUS_VIRTUAL_STATE to a file.")
                try:
                    self._file = open_shared(self._path)
                except OSError as failed:
                    said = f"{self._path}: {failed.strerror or failed}."
                    raise InputError(f"{said} Set ZEUS_VIRTUAL_STATE to a file that can be made.") from None
            with nullcontext() if self._depth else locked(self._file):
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1


def state_file(cards: str) -> Path:
    """The file that ZEUS_VIRTUAL_STATE names, or else this process's own for this kind of machine."""
    named = settings.virtual_state()
    return named.absolute() if named is not None else _own_folder() / f"{cards}.state"


@cache
def _own_folder() -> Path:
    """A folder that this process removes at its end. The ranks of one launcher share one, which a reboot removes."""
    parent = shared_folder() / "virtual"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (me := rank()) is not None:
        return parent / hashlib.sha256(f"{me.job}|{os.getppid()}".encode()).hexdigest()[:16]
    folder = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # a forked child uses its parent's cards
        shutil.rmtree(folder, ignore_errors=True)


def _boot_id() -> bytes:
    try:
        return boot_id().encode()
    except OSError:  # not Linux: boots cannot be told apart
        return b"unknown"
