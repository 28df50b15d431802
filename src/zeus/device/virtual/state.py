"""The state of virtual cards, in a small memory-mapped file that several processes can share.

Like hardware, a file that ZEUS_VIRTUAL_STATE names survives the processes that use it, and a reboot resets it. Without
that variable a process has a file of its own, which ends with it. The file has two slots. A change
is written to the spare one, and then a single byte makes that slot current. So a process that is killed half-way
leaves the last complete state. The lock is `flock`, which the kernel releases when its holder dies.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import mmap
import os
import shutil
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from zeus import settings
from zeus.device.ranks import rank
from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError
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

    def watts_at(self, moment: float, idle_watts: float) -> float:
        return self.busy_watts if moment < self.busy_until else idle_watts


@dataclass(frozen=True, slots=True)
class MachineState:
    """All cards, and the virtual clock (unused if the cards run in real time)."""

    cards: tuple[CardState, ...]
    now: float = 0.0

    def with_card(self, index: int, card: CardState) -> MachineState:
        return replace(self, cards=(*self.cards[:index], card, *self.cards[index + 1 :]))


class Box:
    """Holds the state during a change. It is saved when the block ends without an exception."""

    def __init__(self, state: MachineState) -> None:
        self.state = state


class StateHolder(Protocol):
    """Where a machine's state lives."""

    def read(self) -> MachineState:
        """The last complete state."""

    def change(self) -> AbstractContextManager[Box]:
        """`with holder.change() as box: box.state = ...`. One at a time among all threads and processes."""


class MemoryState:
    """A state that only this process sees."""

    def __init__(self, fresh: MachineState) -> None:
        self._state = fresh
        self._lock = threading.RLock()

    def read(self) -> MachineState:
        return self._state

    @contextmanager
    def change(self) -> Iterator[Box]:
        with self._lock:
            box = Box(self._state)
            yield box
            self._state = box.state


_MAGIC = b"ZEUSVGPU"
_HEADER = struct.Struct("<8sBBxx36s32s")  # magic, format, current slot, boot id, what the cards are
_FORMAT = 1
_CURRENT = 9  # offset of the current-slot byte
_CARD = struct.Struct("<ddddd??")
_SLOT = struct.Struct("<dI")
_SLOT_SIZE = _SLOT.size + MAX_CARDS * _CARD.size
_SIZE = _HEADER.size + 2 * _SLOT_SIZE


class FileState:
    """A state in a file, shared by all processes that name the same file."""

    def __init__(self, path: Path, cards: str, fresh: MachineState) -> None:
        self._path = path
        self._file = -1
        self._depth = 0  # of nested changes; the outermost one locks the file
        self._lock = threading.RLock()
        renew_after_fork(self)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            size = os.fstat(self._file).st_size
            if size not in (0, _SIZE):
                raise InputError(
                    f"{path} is not a state file of virtual cards. Set ZEUS_VIRTUAL_STATE to another file."
                )
            os.ftruncate(self._file, _SIZE)
            self._map = mmap.mmap(self._file, _SIZE)
            magic, version, _, boot, kind = _HEADER.unpack_from(self._map)
            if size and magic not in (_MAGIC, bytes(8)):
                raise InputError(
                    f"{path} is not a state file of virtual cards. Set ZEUS_VIRTUAL_STATE to another file."
                )
            same_boot = magic == _MAGIC and version == _FORMAT and boot == _boot_id()
            if same_boot and kind.rstrip(b"\0") != cards.encode():
                raise InputError(
                    f"{path} holds the cards '{kind.rstrip(bytes(1)).decode(errors='replace')}', not '{cards}'. "
                    "Set ZEUS_VIRTUAL_STATE to another file, or remove this one."
                )
            if not same_boot:
                self._write(0, fresh)
                _HEADER.pack_into(self._map, 0, _MAGIC, _FORMAT, 0, _boot_id(), cards.encode())

    def read(self) -> MachineState:
        with self._locked():
            return self._read()

    @contextmanager
    def change(self) -> Iterator[Box]:
        with self._locked():
            box = Box(self._read())
            yield box
            spare = 1 - self._map[_CURRENT]
            self._write(spare, box.state)
            self._map[_CURRENT] = spare

    def _read(self) -> MachineState:
        offset = _HEADER.size + self._map[_CURRENT] * _SLOT_SIZE
        now, count = _SLOT.unpack_from(self._map, offset)
        offset += _SLOT.size
        at = range(offset, offset + count * _CARD.size, _CARD.size)
        return MachineState(tuple(CardState(*_CARD.unpack_from(self._map, i)) for i in at), now)

    def _write(self, slot: int, state: MachineState) -> None:
        offset = _HEADER.size + slot * _SLOT_SIZE
        _SLOT.pack_into(self._map, offset, state.now, len(state.cards))
        for i, c in enumerate(state.cards):
            fields = (c.limit_watts, c.joules, c.since, c.busy_watts, c.busy_until, c.persistence, c.lost)
            _CARD.pack_into(self._map, offset + _SLOT.size + i * _CARD.size, *fields)

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
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not self._depth:
                fcntl.flock(self._file, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    fcntl.flock(self._file, fcntl.LOCK_UN)


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
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
    except OSError:  # not Linux: boots cannot be told apart
        return b"unknown".ljust(36, b"\0")
