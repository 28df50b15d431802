"""Whether this process runs in a container, and whether a folder in there is shared with the host.

A private keeper in a container whose /run is its own is not safe. It cannot see that a keeper elsewhere lends the same
GPU. And when the container is killed, the keeper and its notes are gone with it, so that nobody puts the limit back.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container")  # Docker, Podman, systemd in any of them
_GROUPS = re.compile(r"kubepods|/lxc[./]|(docker|libpod|crio|containerd)[-/][0-9a-f]{12}")
_FIRST = {"pid": 0xEFFFFFFC, "cgroup": 0xEFFFFFFB}  # numbers that the kernel gives the host's namespaces, always
_OWN = ("tmpfs", "ramfs", "overlay")  # file systems that a container is given afresh


def mark(root: Path = Path("/")) -> str | None:
    """What shows that this process runs in a container; None where nothing does.

    A file that engines leave counts unless all namespaces are those that the kernel began with: then it is left over
    in a machine that was made from a container's image.
    """
    for variable in _read(root / "proc/1/environ").split("\0"):
        if variable.startswith("container="):
            return f"/proc/1/environ says {variable}"
    for name in ("proc/1/cgroup", "proc/self/cgroup"):
        if found := _GROUPS.search(_read(root / name)):
            return f"/{name} names {found[0]}"
    spaces = {kind: _namespace(root, kind) for kind in _FIRST}
    for kind, first in _FIRST.items():
        if spaces[kind] not in (None, first):
            return f"/proc/self/ns/{kind} is not the host's"
    if None in spaces.values():
        return next((f"/{name} is there" for name in _FILES if (root / name).exists()), None)
    return None


def _namespace(root: Path, kind: str) -> int | None:
    """The number of this process's namespace; None where it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int((root / "proc/self/ns" / kind).readlink().name.removeprefix(f"{kind}:[").removesuffix("]"))
    return None


def is_shared(folder: Path, root: Path = Path("/")) -> bool:
    """Whether this folder was mounted into the container from outside.

    A folder of the host shows as a part of a file system, or as one that is no container's own. The container's root,
    and what it mounts afresh, are its own.
    """
    mounts = map(_Mount.parse, _read(root / "proc/self/mountinfo").splitlines())
    over = [mount for mount in mounts if folder.resolve().is_relative_to(mount.point)]
    if not over:
        return False
    deepest = max(len(mount.point.parts) for mount in over)
    mount = next(m for m in reversed(over) if len(m.point.parts) == deepest)  # a later one hides those below it
    return mount.point != Path("/") and (mount.part != "/" or mount.kind not in _OWN)


def risk(folder: Path) -> str | None:
    """Why limits had better not be lent by a keeper whose notes are in this folder; None where it is safe."""
    found = mark()
    if found is None or is_shared(folder):
        return None
    return (
        f"this process runs in a container ({found}), and the keeper's folder {folder} is not shared with the host. "
        "A keeper in here does not see that a GPU is lent by another one elsewhere, and if the container is killed, "
        "nobody puts its limit back."
    )


@dataclass(frozen=True, slots=True)
class _Mount:
    """One line of /proc/self/mountinfo."""

    part: str  # of the file system; "/" is all of it
    point: Path
    kind: str

    @classmethod
    def parse(cls, line: str) -> _Mount:
        before, _, after = line.partition(" - ")
        part, point = before.split(" ")[3:5]
        return cls(part, Path(_unescaped(point)), after.split(" ")[0])


def _unescaped(text: str) -> str:
    """The kernel writes spaces and the like as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # pid 1 is another user's, or /proc is not there
        return ""
