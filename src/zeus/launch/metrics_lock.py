"""One `zeus run` at a time follows a file of metrics: of two scripts that write to it each is taken for the other."""

from __future__ import annotations

import fcntl
import hashlib
from pathlib import Path
from typing import IO

from zeus.device.shared_folder import shared_folder
from zeus.errors import InputError


def claim(path: Path) -> IO[bytes]:
    """Hold this file until what is returned is closed, or the process ends in whatever way.

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
            f"[metrics] file: another `zeus run` follows {path.absolute()}. Start this one in another folder."
        ) from None
    return held
