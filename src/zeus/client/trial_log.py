"""Finds the logs that `zeus run` has written on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zeus import settings
from zeus.errors import NotKnown
from zeus.job import Trial
from zeus.store.address import log_file, log_folder

END_BYTES = 100_000


def find_log(job_id: str, life: str, trial: Trial, environ: Mapping[str, str] = settings.HERE) -> Path:
    """The log of a trial.

    Raises:
        NotKnown: It is not on this machine.
    """
    folder = log_folder(job_id, life, environ).resolve()
    path = log_file(folder, trial.number, trial.id, written=True).resolve()
    if path.parent == folder and path.is_file():
        return path
    raise NotKnown(
        f"the log of trial {trial.number} is not on this machine. Look on the machine where `zeus run` ran it."
    )


def end_of(log: Path) -> str:
    """The last 100,000 bytes of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - END_BYTES))
        return file.read().decode(errors="replace")
