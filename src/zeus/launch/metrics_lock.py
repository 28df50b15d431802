"""Locks a file of metrics: if two scripts wrote to it, their lines could not be told apart."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path
from typing import IO

from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError


def claim(path: Path) -> IO[bytes]:
    """Lock this file for one `zeus run`, until the returned file is closed or the process ends.

    Raises:
        InputError: Another process of this user holds it.
    """
    name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
    folder = shared_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = (folder / f"metrics-{name}.lock").open("ab")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise InputError(
            f"[metrics] file: another `zeus run` is following {path.absolute()}. Start this one in another folder."
        ) from None
    return held
