"""The logs that `zeus run` keeps of its trials, where they lie on this machine."""

from __future__ import annotations

import os

from zeus.store.open import log_folder

TAIL_BYTES = 100_000


def log_of(job_id: str, number: int, store_url: str | None = None) -> str | None:
    """The end of a trial's log; None where there is none here."""
    folder = log_folder(job_id, {**os.environ, **({"ZEUS_STORE": store_url} if store_url else {})}).resolve()
    path = (folder / f"{number}.log").resolve()
    if path.parent != folder or not path.is_file():
        return None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode(errors="replace")
