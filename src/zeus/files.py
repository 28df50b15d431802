"""Writing a file whole: whoever reads it sees the old text or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: Path, text: str, *, mode: int = 0o600) -> None:
    """Replace a file by this text, also across a crash of the machine. Its folder must exist."""
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with os.fdopen(os.open(beside, flags, mode), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
