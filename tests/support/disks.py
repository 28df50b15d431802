"""Tiny disks: a tmpfs of a few KiB, mounted while a test runs. Needs root, and a kernel that lets root mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BLOCK = 4096


@contextmanager
def tiny_disk(folder: Path, kib: int) -> Iterator[Path]:
    """Mount a disk of so many KiB at this folder. The test is skipped where that cannot be done."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=755", "zeus-tiny", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except OSError as failed:
        pytest.skip(f"no mount here: {failed}")
    if done.returncode:
        pytest.skip(f"a tiny disk needs root that may mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # whoever still has a file there keeps it


def free(disk: Path) -> int:
    """Bytes that can still be written there."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


def size(disk: Path) -> int:
    """Bytes of all of it."""
    found = os.statvfs(disk)
    return found.f_blocks * found.f_frsize


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Fill it up, but for so many bytes; remove the file that is returned to make room again."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file:
        while (room := free(disk) - leave) >= BLOCK:
            file.write(b"x" * min(room, 1 << 20))
    return ballast
