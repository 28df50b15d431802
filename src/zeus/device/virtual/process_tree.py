"""The folder of virtual cards that only one tree of processes sees: a run, its scripts and its keeper.

The first process that uses such cards makes the folder and names it in ZEUS_VIRTUAL_TREE, which its children inherit.
Ranks have no such parent among us: those that one launcher started share a folder named after that launcher. Every
process holds a lock on the folder while it lives. The last one to end removes it, and what killed processes left behind
is removed when the next folder is made.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zeus import env
from zeus.device.ranks import rank
from zeus.device.shared_folder import shared_folder

_LOCK = "in-use"
_held: dict[Path, int] = {}  # the lock on each folder that this process uses


def tree_folder() -> Path:
    """The folder of this process's tree. Makes one if there is none."""
    given = env.virtual_tree()
    if given is not None:
        folder = Path(given)
        if folder in _held or _join(folder):
            return folder
    parent = shared_folder() / "virtual-trees"
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(parent):
        _sweep(parent)
        name = _launcher_name()
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent)) if name is None else parent / name
        folder.mkdir(mode=0o700, exist_ok=True)
        _join(folder)
    env.put({env.VIRTUAL_TREE: str(folder)})
    return folder


def _launcher_name() -> str | None:
    """A name that the ranks of one launcher share; None for a process on its own."""
    me, parent = rank(), os.getppid()
    if me is None:
        return None
    try:
        began = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux, or the parent is hidden
        began = ""
    return "ranks-" + hashlib.sha256(f"{me.job}|{parent}|{began}".encode()).hexdigest()[:16]


def _join(folder: Path) -> bool:
    """Lock the folder for as long as this process lives. False if it is gone."""
    try:
        fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return False
    fcntl.flock(fd, fcntl.LOCK_SH)
    if not (folder / _LOCK).exists():  # it was removed just before
        os.close(fd)
        return False
    if not _held:
        atexit.register(_leave)
    _held[folder] = fd
    return True


def _leave() -> None:
    """Remove the folders that nobody else uses any more."""
    while _held:
        folder, fd = _held.popitem()
        _remove_if_unused(folder, fd)
        os.close(fd)


def _remove_if_unused(folder: Path, fd: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while another process holds it
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed processes left behind."""
    for folder in parent.iterdir():
        if folder.is_dir() and folder not in _held:
            with contextlib.suppress(OSError):
                fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                _remove_if_unused(folder, fd)
                os.close(fd)


@contextmanager
def _alone(parent: Path) -> Iterator[None]:
    """No other process makes or sweeps folders meanwhile."""
    fd = os.open(parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _after_fork_in_child() -> None:
    """A forked child shares its parent's locks. It takes its own, so that the parent does not remove what it uses."""
    inherited = dict(_held)
    _held.clear()
    atexit.unregister(_leave)
    for folder, fd in inherited.items():
        _join(folder)
        os.close(fd)


os.register_at_fork(after_in_child=_after_fork_in_child)
