"""Small files that processes share: whole writes, locks, folders that only one user can write to, and the boot id."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from uuid import uuid4

from zeus.errors import NotPermitted


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file's contents. A reader sees the old text or the new one, even if the machine crashes.

    The folder must exist.
    """
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(temporary, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def open_shared(path: Path) -> int:
    """Open a file that processes of one user share, and make it if it is missing. Never follows a link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class FileLock:
    """A lock that this process holds. The kernel releases it if the process dies."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, path: Path, holder: str = "") -> FileLock | None:
        """Lock the file at this path, which is made if it is missing. None if it is locked already.

        `holder` is written into the file, for others who want the lock. Never remove the file: somebody might be
        taking the lock at that moment.
        """
        fd = open_shared(path)
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
        return cls(fd)

    def release(self) -> None:
        """Release the lock. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.release()


@contextlib.contextmanager
def locked(file: int) -> Iterator[None]:
    """Hold the lock of this open file, once nobody else does. The kernel releases it if the process dies."""
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def open_folder(folder: Path) -> None:
    """Make a folder that every user can enter, whatever the umask. An existing one stays as it is."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)


def private_folder(folder: Path, what: str, remedy: str) -> Path:
    """Make a folder that only this user can write to, and return it.

    Args:
        folder: The folder. Its parent is made too, open to others.
        what: What it is, for the message.
        remedy: What to do if it cannot be used, besides removing it.

    Raises:
        NotPermitted: It exists and is no folder, or another user owns it or can write to it.
    """
    open_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NotPermitted(
            f"{what} {folder} is not a folder that only user {os.geteuid()} can write to. Remove it, or {remedy}."
        )
    return folder


def boot_id() -> str:
    """An id that is different after each boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
