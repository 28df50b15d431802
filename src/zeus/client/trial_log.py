"""The logs of trials: what `zeus run` has written on this machine, and the ends of logs that are in the store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zeus import settings
from zeus.client.resilient.cache import CACHE, OfflineCache
from zeus.client.resilient.spool import default_folder
from zeus.errors import NotKnown
from zeus.job import Trial, TrialRecord
from zeus.job.wire import Json
from zeus.store import Store
from zeus.store.address import address_of, log_file, log_folder, resolve
from zeus.store.api import utc
from zeus.store.trial_logs import MOST_BYTES, last_lines

END_BYTES = 100_000
LOOKED_AT = 1 << 20  # bytes from the end, in which the traceback of a crash is looked for
TRACEBACK = "Traceback (most recent call last):"
MOST_TRACEBACK = 8_192  # bytes of a traceback that is repeated before the last lines


def find_log(job_id: str, generation: str, trial: Trial, environ: Mapping[str, str] = settings.HERE) -> Path | None:
    """The log of a trial, if it is on this machine. A trial that began without its store had another number then."""
    folder = log_folder(job_id, generation, environ).resolve()
    path = log_file(folder, trial.number, trial.id, written=True).resolve()
    if not path.exists() and (began := _cache(environ).began_as(job_id, trial)) is not None:
        folder = log_folder(job_id, began.job.generation if began.job else "", environ).resolve()
        path = log_file(folder, began.trial.number, "").resolve()
    return path if path.parent == folder and path.is_file() else None


def _cache(environ: Mapping[str, str]) -> OfflineCache:
    address = address_of(resolve(None, environ))
    return OfflineCache(default_folder(address, environ) / CACHE)


def told_log(store: Store, job_id: str, number: int, environ: Mapping[str, str] = settings.HERE) -> Json:
    """The end of a trial's log, when it was written, and the host and folder that the trial ran in.

    Raises:
        NotKnown: It is neither on this machine nor in the store. The message says where it is.
    """
    record = store.trial(job_id, number)
    where = {
        name: None if record.origin is None else getattr(record.origin, name) or None for name in ("host", "folder")
    }
    if (path := find_log(job_id, store.job(job_id).generation, record.trial, environ)) is not None:
        return {"log": end_of(path), "at": utc(path.stat().st_mtime), **where}
    if (found := store.logs.find(job_id, number)) is not None:
        return {"log": found.text, "at": found.at, **where}
    raise NotKnown(f"the log of trial {number} is neither in the store nor on this machine. {_where(record)}")


def _where(record: TrialRecord) -> str:
    origin = record.origin
    if origin is None or not origin.host:
        return "Look on the machine where the trial ran."
    who, folder = f" as {origin.user}" if origin.user else "", f", started in {origin.folder}" if origin.folder else ""
    return f"It ran on {origin.host}{who}{folder}. Look there for its output."


def end_of(log: Path, most: int = END_BYTES) -> str:
    """The last bytes of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - most))
        return file.read().decode(errors="replace")


def tail_of(log: Path, *, crashed: bool = False) -> str:
    """The last lines of a log, as they travel. After a crash they hold its traceback, even if more came after it."""
    text = end_of(log, LOOKED_AT)
    tail = last_lines(text)
    at = text.rfind(TRACEBACK)
    if not crashed or at < 0 or TRACEBACK in tail:
        return tail
    raised = text[at:].encode()[:MOST_TRACEBACK].decode(errors="ignore")
    return f"{raised}\n[zeus: more output is left out here]\n{last_lines(text, MOST_BYTES - MOST_TRACEBACK - 100)}"
