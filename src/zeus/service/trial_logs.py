"""The logs that `zeus run` keeps of its trials, where they lie on this machine."""

from __future__ import annotations

from zeus import env
from zeus.job import Trial
from zeus.store.address import log_file, log_folder
from zeus.store.api import Job

TAIL_BYTES = 100_000


def log_of(job: Job, trial: Trial, store_url: str | None = None) -> str | None:
    """The end of a trial's log; None where there is none here."""
    environ = {**env.HERE, **({"ZEUS_STORE": store_url} if store_url else {})}
    for life in (job.generation, ""):  # Zeus 0.1 had no folder for each life
        folder = log_folder(job.id, life, environ).resolve()
        path = log_file(folder, trial.number, trial.id, written=True).resolve()
        if path.parent == folder and path.is_file():
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - TAIL_BYTES))
                return file.read().decode(errors="replace")
    return None
