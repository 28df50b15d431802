"""Locks a file of metrics: if two scripts wrote to it, their lines could not be told apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

from zeus.device.ranks import shared_folder
from zeus.errors import InputError
from zeus.files import FileLock


def claim(path: Path) -> FileLock:
    """Lock this file for one `zeus run`, until the lock is released or the process ends.

    Raises:
        InputError: Another process of this user holds it.
    """
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    folder = shared_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = FileLock.take(folder / f"metrics-{name}.lock")
    if held is None:
        raise InputError(
            f"[metrics] file: another `zeus run` is following {path.absolute()}. Start this one in another folder."
        )
    return held
