"""Whether this process runs in a container, and whether a folder there is shared with the host.

A private keeper is not safe in a container that has its own /run. It cannot see that another keeper lends the same
GPU. And if the container is killed, the keeper and its notes are gone, so nobody restores the limit.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container")  # Docker, Podman, systemd in any of them
_GROUPS = re.compile(r"kubepods|/lxc[./]|(docker|libpod|crio|containerd)[-/][0-9a-f]{12}")
_FIRST = {"pid": 0xEFFFFFFC, "cgroup": 0xEFFFFFFB}  # the kernel's fixed numbers for the host's namespaces
_OWN = ("tmpfs", "ramfs", "overlay")  # file systems that are created for a container


def mark(root: Path = Path("/")) -> str | None:
    """The evidence that this process runs in a container. None if there is none.

    Container engines leave marker files. These do not count if all namespaces are the host's: the machine was then
    built from a container image.
    """
    for variable in _read(root / "proc/1/environ").split("\0"):
        if variable.startswith("container="):
            return f"/proc/1/environ has {variable}"
    for name in ("proc/1/cgroup", "proc/self/cgroup"):
        if found := _GROUPS.search(_read(root / name)):
            return f"/{name} names {found[0]}"
    spaces = {kind: _namespace(root, kind) for kind in _FIRST}
    for kind, first in _FIRST.items():
        if spaces[kind] not in (None, first):
            return f"/proc/self/ns/{kind} is not the host's"
    if None in spaces.values():
        return next((f"/{name} exists" for name in _FILES if (root / name).exists()), None)
    return None


def _namespace(root: Path, kind: str) -> int | None:
    """The number of this process's namespace. None if it cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int((root / "proc/self/ns" / kind).readlink().name.removeprefix(f"{kind}:[").removesuffix("]"))
    return None


def is_shared(folder: Path, root: Path = Path("/")) -> bool:
    """Whether this folder was mounted into the container from outside.

    A folder from the host shows up as part of a file system, or as a file system of a type that is never created for a
    container. The container's root, and file systems created for it, are not shared.
    """
    mounts = map(_Mount.parse, _read(root / "proc/self/mountinfo").splitlines())
    above = [mount for mount in mounts if folder.resolve().is_relative_to(mount.point)]
    if not above:
        return False
    deepest = max(len(mount.point.parts) for mount in above)
    mount = next(m for m in reversed(above) if len(m.point.parts) == deepest)  # a later mount hides earlier ones
    return mount.point != Path("/") and (mount.part != "/" or mount.kind not in _OWN)


def risk(folder: Path) -> str | None:
    """Why a keeper with its notes in this folder is unsafe. None if it is safe."""
    found = mark()
    if found is None or is_shared(folder):
        return None
    return (
        f"this process runs in a container ({found}), and the keeper's folder {folder} is not shared with the host. "
        "A keeper in the container cannot see that another keeper lends the same GPU. If the container is killed, "
        "nobody restores the GPU's power limit."
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
    """Undo the kernel's escapes: three octal digits for a space and the like."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:  # another user owns pid 1, or there is no /proc
        return ""
