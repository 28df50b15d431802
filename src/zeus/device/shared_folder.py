"""Where the processes of one user share small files: rank locks and virtual cards. Gone after logout or reboot."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from zeus import settings
from zeus.errors import InputError


def shared_folder(environ: Mapping[str, str] = settings.HERE) -> Path:
    """This user's own folder: in XDG_RUNTIME_DIR, or else in the temporary folder, which other users can write to.

    Raises:
        InputError: The folder's name is taken by something that is not a folder, or that others own or may write to.
    """
    if (runtime := settings.runtime_folder(environ)) is not None:
        return runtime / "zeus"
    folder = settings.temporary_folder(environ) / f"zeus-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InputError(
            f"{folder} is not a folder that you alone may write to. Remove it, or set XDG_RUNTIME_DIR to one that is."
        )
    return folder
