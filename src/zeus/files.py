"""Writes a file atomically: a reader sees the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file's contents. Safe even if the machine crashes. The folder must exist."""
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
