"""What virtual cards remember, in one small memory-mapped file that every process shares.

Like hardware it survives the processes that use it and is reset by a reboot. A change is written to the spare
slot of two and then made current by a single byte, so that a process killed half-way leaves the last whole
state behind; the lock around it is `flock`, which the kernel drops with its holder.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError

MAX_CARDS = 16


@dataclass(frozen=True, slots=True)
class CardState:
    """One card: `joules` used until `since`, from there busy at `busy_watts` until `busy_until`, idle after that."""

    limit_watts: float
    joules: float = 0.0
    since: float = 0.0
    busy_watts: float = 0.0
    busy_until: float = 0.0
    persistence: bool = False
    lost: bool = False

    def joules_at(self, moment: float, idle_watts: float) -> float:
        """Energy used up to this moment: busy first, idle after."""
        busy = max(0.0, min(moment, self.busy_until) - self.since)
        idle = max(0.0, moment - max(self.since, self.busy_until))
        return self.joules + self.busy_watts * busy + idle_watts * idle

    def watts_at(self, moment: float, idle_watts: float) -> float:
        """Power drawn at this moment."""
        return self.busy_watts if moment < self.busy_until else idle_watts


@dataclass(frozen=True, slots=True)
class MachineState:
    """All cards, and the virtual clock (unused where cards run in real time)."""

    cards: tuple[CardState, ...]
    now: float = 0.0

    def with_card(self, index: int, card: CardState) -> MachineState:
        """The same machine with one card changed."""
        return replace(self, cards=(*self.cards[:index], card, *self.cards[index + 1 :]))


class Box:
    """The state inside a change; what is assigned here is kept when the block ends without an exception."""

    def __init__(self, state: MachineState) -> None:
        self.state = state


class StateHolder(Protocol):
    """Where a machine's state lives."""

    def read(self) -> MachineState:
        """The last whole state."""

    def change(self) -> AbstractContextManager[Box]:
        """`with holder.change() as box: box.state = ...`; one at a time among all threads and processes."""


class MemoryState:
    """A state that this process alone sees."""

    def __init__(self, fresh: MachineState) -> None:
        self._state = fresh
        self._lock = threading.RLock()

    def read(self) -> MachineState:
        """The last whole state."""
        return self._state

    @contextmanager
    def change(self) -> Iterator[Box]:
        """Change the state."""
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
        self._depth = 0  # of changes inside changes: the file is locked by the outermost
        self._lock = threading.RLock()
        _files.add(self)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            size = os.fstat(self._file).st_size
            if size not in (0, _SIZE):
                raise InputError(f"{path} is not a state of virtual cards. Name another file in ZEUS_VIRTUAL_STATE.")
            os.ftruncate(self._file, _SIZE)
            self._map = mmap.mmap(self._file, _SIZE)
            magic, version, _, boot, kind = _HEADER.unpack_from(self._map)
            if size and magic not in (_MAGIC, bytes(8)):
                raise InputError(f"{path} is not a state of virtual cards. Name another file in ZEUS_VIRTUAL_STATE.")
            same_boot = magic == _MAGIC and version == _FORMAT and boot == _boot_id()
            if same_boot and kind.rstrip(b"\0") != cards.encode():
                raise InputError(
                    f"{path} holds the cards '{kind.rstrip(bytes(1)).decode(errors='replace')}', not '{cards}'. "
                    "Name another file in ZEUS_VIRTUAL_STATE, or remove this one."
                )
            if not same_boot:
                self._write(0, fresh)
                _HEADER.pack_into(self._map, 0, _MAGIC, _FORMAT, 0, _boot_id(), cards.encode())

    def read(self) -> MachineState:
        """The last whole state."""
        with self._locked():
            return self._read()

    @contextmanager
    def change(self) -> Iterator[Box]:
        """Change the state."""
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
        """Open the file anew: a forked child shares its parent's lock, so neither would lock the other out."""
        if self._file >= 0:
            os.close(self._file)
        self._file, self._depth, self._lock = -1, 0, threading.RLock()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self._file < 0:
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


_files: weakref.WeakSet[FileState] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for state in list(_files):
        state.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)


def default_path(cards: str) -> Path:
    """One file per user and kind of machine, where it goes away with the session or the boot."""
    return shared_folder() / f"virtual-{cards}.state"


def _boot_id() -> bytes:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()[:36]
    except OSError:  # not Linux: nothing tells boots apart
        return b"unknown".ljust(36, b"\0")
