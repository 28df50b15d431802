"""The keeper's notes on what it found, written before it changes anything, and one lock per GPU.

    <folder>/<uuid>.json    the limit found, the limits that Zeus set, and the boot in which that happened
    <folder>/<uuid>.lock    held with flock for the life of a lease, by private and system keepers alike

A note outlives the keeper that wrote it, so that the next keeper can restore the limit. After a reboot the driver has
restored it already: a note from another boot is void. The kernel releases a lock when its holder dies. Lock files are
never removed, because somebody might be taking the lock at that moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import stat
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, unquote

from zeus import env
from zeus.device.virtual.machine import own_state
from zeus.errors import NotPermitted
from zeus.files import write_whole

_VERSION = 1


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

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps({"zeus": _VERSION, **fields}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Note:
        """Read a note that `to_json` wrote. Raises `NewerNote` if a newer Zeus wrote it, `ValueError` if malformed.

        >>> note = Note("GPU-1", "boot", 250.0, ours_watts=(125.0,))
        >>> Note.from_json(note.to_json()) == note
        True
        """
        try:
            d = json.loads(text)
            if (version := int(d["zeus"])) > _VERSION:
                raise NewerNote(f"version {version}; this Zeus reads up to {_VERSION}")
            if version < _VERSION:
                raise ValueError(f"version {version} does not exist")
            found, ours = float(d["found_watts"]), tuple(float(w) for w in d["ours_watts"])
            setting = None if d.get("setting_watts") is None else float(d["setting_watts"])
            if not all(math.isfinite(w) for w in (found, *ours, setting or 0.0)):
                raise ValueError("a limit is not a finite number")
            persistence = d["found_persistence"]
            return cls(
                str(d["uuid"]), str(d["boot"]), found, None if persistence is None else bool(persistence), ours,
                bool(d["switched_persistence"]), int(d["pid"]), str(d["time"]), setting, str(d.get("borrower", "")),
            )  # fmt: skip
        except (KeyError, TypeError, OverflowError, RecursionError) as e:
            raise ValueError(f"not a keeper's note: {e!r}") from e


class NewerNote(Exception):
    """Only a newer version of Zeus can read this note, so this one cannot restore the limit."""


class Lock:
    """A GPU's lock, held."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


class Notes:
    """The notes and locks in one folder."""

    def __init__(self, folder: Path, boot: str | None = None) -> None:
        self.folder = folder
        self.boot = boot_id() if boot is None else boot

    @classmethod
    def here(cls) -> Notes:
        """The notes in this process's folder. Makes the folder, and refuses one that somebody else can write to."""
        chosen = env.keeper_state()
        if chosen:
            return cls(_private_folder(Path(chosen).absolute()))
        if (cards := own_state()) is not None:  # beside the cards, and gone with them
            return cls(_private_folder(cards.with_name(f"{cards.name}.keeper")))
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):  # /run may be read-only in a container
                return cls(_private_folder(Path("/run/zeus/keeper")))
        elif (runtime := env.runtime_folder()) is not None:
            return cls(_private_folder(runtime / "zeus" / "keeper"))
        mine = _private_folder(Path(tempfile.gettempdir()) / f"zeus-{os.geteuid()}")
        return cls(_private_folder(mine / "keeper"))

    def lock(self, uuid: str, holder: str = "") -> Lock | None:
        """Take this GPU's lock. None if it is taken. `holder` names the holder to others who want it."""
        fd = os.open(self._path(uuid, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):  # on a full disk the lock works without a name in it
                os.ftruncate(fd, 0)
                os.pwrite(fd, holder.encode(errors="replace"), 0)
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return Lock(fd)

    def holder(self, uuid: str) -> str:
        """Who last took this GPU's lock, in words."""
        with contextlib.suppress(OSError):
            return self._path(uuid, "lock").read_text(errors="replace") or "another keeper"
        return "another keeper"

    def write(self, note: Note) -> None:
        """Write this note. Once this returns, the note survives any crash."""
        path = self._path(note.uuid, "json")
        write_whole(path, note.to_json())

    def read(self, uuid: str) -> Note | None:
        """The note about this GPU, or None. Raises `ValueError` or `NewerNote` if it cannot be read."""
        path = self._path(uuid, "json")
        try:
            note = Note.from_json(path.read_text())
        except FileNotFoundError:
            return None
        except NewerNote as e:
            raise NewerNote(
                f"GPU {uuid}: a newer Zeus left a limit to restore, but this Zeus cannot read its note ({path}: {e}). "
                "Run `zeus restore` with the newer Zeus, or set the limit yourself and remove the note."
            ) from e
        if note.uuid != uuid:
            raise ValueError(f"the file is named after {uuid!r} but describes {note.uuid!r}")
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

    def _path(self, uuid: str, kind: str) -> Path:
        return self.folder / f"{quote(uuid, safe='')}.{kind}"


def boot_id() -> str:
    """An id that is different after each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def make_open(folder: Path) -> None:
    """Make a folder that every user can enter, whatever the umask. The system keeper's socket needs one."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def _private_folder(folder: Path) -> Path:
    """Make a folder that only we can write to: its notes tell a process that may be root what to do."""
    make_open(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISREG(found.st_mode):
        raise NotPermitted(
            f"the keeper's folder {folder} is a file, not a folder. Remove it, or set ZEUS_KEEPER_STATE to a folder."
        )
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
    if not mine:
        raise NotPermitted(
            f"the keeper's folder {folder} is not a folder that only user {os.geteuid()} can write to. "
            "Remove it, or set ZEUS_KEEPER_STATE to another folder."
        )
    return folder
