"""The keeper's notes on what it found, written before it changes anything, and one lock per GPU.

    <folder>/<uuid>.json    the limit found, the limits that Zeus set, and the boot in which that happened
    <folder>/<uuid>.lock    held with flock for the life of a lease, by private and system keepers alike

A note outlives the keeper that wrote it, so that the next keeper can restore the limit. After a reboot the driver has
restored it already: a note from another boot is void.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote

from zeus import settings
from zeus.device.virtual.machine import own_state
from zeus.errors import DeviceError
from zeus.files import FileLock, boot_id, private_folder, write_whole

_VERSION = 1
TOLERANCE_WATTS = 1.0  # drivers round a limit that is set by up to this; the limit that they report is exact


def same(a: float, b: float) -> bool:
    """Whether two limits that the driver reported are equal. It counts in milliwatts."""
    return round(a * 1e3) == round(b * 1e3)


def near(reported: float, given: float) -> bool:
    """Whether the reported limit may be the driver's rounding of the one that was set."""
    return abs(round(reported * 1e3) - round(given * 1e3)) <= TOLERANCE_WATTS * 1e3


@dataclass(frozen=True, slots=True)
class Note:
    """The state of one GPU before Zeus changed it, and every limit that Zeus may have put in force."""

    uuid: str
    boot: str
    found_watts: float
    found_persistence: bool | None = None  # None: the card does not report it
    ours_watts: tuple[float, ...] = ()  # limits that Zeus set, as the driver reported them
    switched_persistence: bool = False  # Zeus turned it on, or is about to
    pid: int = field(default_factory=os.getpid)
    time: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    setting_watts: float | None = None  # about to be set; after a crash it may be in force, rounded by the driver
    borrower: str = ""  # for whom, in words for the audit

    def is_foreign(self, watts: float) -> bool:
        """Whether somebody else set this limit, which is now in force.

        >>> note = Note("GPU-1", "boot", found_watts=250, ours_watts=(150,), setting_watts=125)
        >>> note.is_foreign(250), note.is_foreign(150), note.is_foreign(124.9)
        (False, False, False)
        >>> note.is_foreign(249.5), note.is_foreign(150.001), note.is_foreign(200)
        (True, True, True)
        """
        if self.setting_watts is not None and near(watts, self.setting_watts):
            return False
        return not any(same(watts, expected) for expected in (self.found_watts, *self.ours_watts))

    def __post_init__(self) -> None:
        setting = () if self.setting_watts is None else (self.setting_watts,)
        if not all(math.isfinite(watts) for watts in (self.found_watts, *self.ours_watts, *setting)):
            raise ValueError("a limit is not a finite number")

    def to_json(self) -> str:
        return json.dumps({"zeus": _VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Note:
        """Read a note that `to_json` wrote. Raises `ValueError` if this Zeus cannot.

        >>> note = Note("GPU-1", "boot", 250.0, ours_watts=(125.0,))
        >>> Note.from_json(note.to_json()) == note
        True
        """
        try:
            fields = json.loads(text)
            if (version := int(fields.pop("zeus"))) > _VERSION:
                raise ValueError(f"run `zeus restore` of a newer Zeus (version {version}; this one reads {_VERSION})")
            return cls(**{**fields, "ours_watts": tuple(fields["ours_watts"])})
        except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as e:
            raise ValueError(f"not a keeper's note: {e!r}") from e


class UnreadableNote(Exception):
    """The note is damaged, or a newer Zeus wrote it. So nobody here knows which limit to restore."""


class Notes:
    """The notes and locks in one folder."""

    def __init__(self, folder: Path, boot: str | None = None) -> None:
        self.folder = folder
        self.boot = boot_id() if boot is None else boot

    @classmethod
    def here(cls) -> Notes:
        """The notes in this process's folder. Makes the folder.

        Raises:
            NotPermitted: Somebody else can write to it.
            DeviceError: It cannot be made.
        """
        try:
            return cls(_folder())
        except OSError as e:
            if isinstance(e, DeviceError):
                raise
            raise DeviceError(
                f"the keeper's folder cannot be made ({e}). Set ZEUS_KEEPER_STATE to another folder."
            ) from e

    def lock(self, uuid: str, holder: str = "") -> FileLock | None:
        """Take this GPU's lock. None if it is taken. `holder` names the holder to others who want it."""
        return FileLock.take(self._path(uuid, "lock"), holder)

    def holder(self, uuid: str) -> str:
        """Who last took this GPU's lock, in words."""
        with contextlib.suppress(OSError):
            return self._path(uuid, "lock").read_text(errors="replace") or "another keeper"
        return "another keeper"

    def write(self, note: Note) -> None:
        """Write this note. Once this returns, the note survives any crash."""
        write_whole(self._path(note.uuid, "json"), note.to_json())

    def read(self, uuid: str) -> Note | None:
        """The note about this GPU, or None. Raises `UnreadableNote` if there is one that cannot be read."""
        path = self._path(uuid, "json")
        try:
            note = Note.from_json(path.read_text())
            if note.uuid != uuid:
                raise ValueError(f"it describes the GPU {note.uuid!r}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as e:
            raise UnreadableNote(
                f"GPU {uuid}: a keeper left a limit to restore, but its note {path} cannot be read: {e}. "
                "To lend the GPU again, set the limit yourself and remove the note."
            ) from e
        return note

    def is_void(self, note: Note) -> bool:
        """Whether the note is from another boot, whose limits the driver has reset since."""
        return note.boot != self.boot

    def drop(self, uuid: str) -> None:
        """Remove this GPU's note, when nothing is left to restore."""
        self._path(uuid, "json").unlink(missing_ok=True)

    def uuids(self) -> list[str]:
        """The GPUs that have a note, sorted."""
        return sorted(unquote(path.stem) for path in self.folder.glob("*.json"))

    def lent(self) -> list[str]:
        """The GPUs on lease now, from any keeper that shares these notes."""
        lent = []
        for uuid in self.uuids():
            if (lock := self.lock(uuid)) is None:
                lent.append(uuid)
            else:
                lock.release()
        return lent

    def left_behind(self) -> list[str]:
        """The GPUs whose limit a dead keeper left changed, or may have."""
        return [uuid for uuid in self.uuids() if self._is_left(uuid)]

    def _is_left(self, uuid: str) -> bool:
        if (lock := self.lock(uuid)) is None:
            return False
        with lock:
            try:
                note = self.read(uuid)
            except UnreadableNote:
                return True
        return note is not None and not self.is_void(note)

    def _path(self, uuid: str, kind: str) -> Path:
        return self.folder / f"{quote(uuid, safe='')}.{kind}"


def _folder() -> Path:
    if chosen := settings.keeper_state():
        return _private(chosen.absolute())
    if (cards := own_state()) is not None:  # beside the cards, and gone with them
        return _private(cards.with_name(f"{cards.name}.keeper"))
    if os.geteuid() == 0:
        try:
            return _private(Path("/run/zeus/keeper"))
        except OSError as e:  # never after a refusal: two keepers with two folders could lend one GPU
            if e.errno not in (errno.ENOENT, errno.EROFS):  # a container may have no /run, or a read-only one
                raise
    elif (runtime := settings.runtime_folder()) is not None:
        return _private(runtime / "zeus" / "keeper")
    return _private(_private(settings.temporary_folder()) / "keeper")


def _private(folder: Path) -> Path:
    """The folder, made if needed. Nobody else may write to it: its notes tell a process that may be root what to do."""
    return private_folder(folder, "the keeper's folder", "set ZEUS_KEEPER_STATE to another folder")
