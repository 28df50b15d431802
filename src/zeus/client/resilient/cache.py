"""Local copies of jobs and trials, used while their store is unreachable.

Each has its own file beside the waiting messages, so that `zeus run`, which asks, and the script, which tells, see the
same. If the disk is full, trials are kept in memory. Whenever the store answers, its state counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from zeus.client.api import ALONE, Registered
from zeus.client.resilient.spool import write
from zeus.errors import StoreError
from zeus.job import Checked, Ending, Outcome, Trial, replace
from zeus.job.wire import loads, plain, read

log = logging.getLogger(__name__)
T = TypeVar("T")

CACHE = "known"  # its folder, beside the waiting messages
KEPT_SECONDS = 30 * 86_400.0  # longer than any training goes without a report


class CachedTrial(Checked, frozen=True):
    """A trial that was opened here."""

    trial: Trial
    so_far: Outcome | None = None
    key: str | None = None  # under which a trial that began without the store is reported
    job: Registered | None = None  # that such a trial runs with, as last seen when it began
    is_accepted: bool = False  # whether the store has accepted how it ended
    stored: Trial | None = None  # what a trial that began without the store became there, once it was reported


class OfflineCache:
    """The folder of local copies."""

    def __init__(self, folder: Path, wall: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._wall = wall
        self._unwritten: dict[tuple[str, int], CachedTrial] = {}

    def job(self, job_id: str) -> Registered | None:
        """The job as last seen, if ever."""
        return _load(self._of(job_id) / "job.json", Registered)

    def keep_job(self, now: Registered) -> None:
        """Keep a copy of the job. A failure to write is ignored."""
        path = self._of(now.spec.id) / "job.json"
        with contextlib.suppress(StoreError, OSError):
            if self.job(now.spec.id) != now:
                write(path, plain(now))
            else:
                os.utime(path)  # marks it as in use, so that `sweep` keeps it

    def trial(self, job_id: str, number: int) -> CachedTrial | None:
        if (unwritten := self._unwritten.get((job_id, number))) is not None:
            return unwritten
        return _load(self._file(job_id, number), CachedTrial)

    def runs_alone(self, job_id: str) -> bool:
        """Whether a trial that began without the store is running here."""
        return any(one.trial.ending is Ending.OPEN for one in self._began_alone(job_id))

    def _began_alone(self, job_id: str) -> Iterator[CachedTrial]:
        """The trials that began without the store."""
        numbers = {int(path.stem) for path in self._of(job_id).glob("[0-9]*.json") if path.stem.isdecimal()}
        numbers |= {number for job, number in self._unwritten if job == job_id}
        for number in numbers:
            if number >= ALONE and (cached := self.trial(job_id, number)) is not None:
                yield cached

    def keep(self, job_id: str, cached: CachedTrial) -> None:
        """Keep a copy of a trial on disk, or in memory if the disk fails."""
        number = cached.trial.number
        try:
            write(self._file(job_id, number), plain(cached))
            self._unwritten.pop((job_id, number), None)
        except StoreError as full:
            self._unwritten[job_id, number] = cached
            log.debug("trial %s of job %r is kept in memory only: %s", number, job_id, full)

    def mark_accepted(self, job_id: str, trial: Trial) -> None:
        """Mark the trial as accepted by the store. The copy stays for when the store is unreachable again."""
        if (cached := self.trial(job_id, trial.number)) is not None:
            self.keep(job_id, replace(cached, trial=trial, is_accepted=True))

    def mark_stored(self, job_id: str, key: str, stored: Trial) -> None:
        """Mark the trial that was reported under this key: it is this one in the store."""
        for cached in self._began_alone(job_id):
            if cached.key == key:
                self.keep(job_id, replace(cached, stored=stored))

    def began_as(self, job_id: str, stored: Trial) -> CachedTrial | None:
        """How this trial of the store began here, if it began without the store."""
        began = self._began_alone(job_id)
        return next((one for one in began if one.stored is not None and one.stored.id == stored.id), None)

    def drop(self, job_id: str, number: int, trial_id: str = "") -> None:
        """Remove the copy, unless it is of another trial with the same number: the store's state counts now."""
        if trial_id and (cached := self.trial(job_id, number)) is not None and cached.trial.id != trial_id:
            return
        self._unwritten.pop((job_id, number), None)
        with contextlib.suppress(OSError):
            self._file(job_id, number).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove copies that were not used for `KEPT_SECONDS`."""
        for path in self._folder.glob("*/*.json"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < self._wall() - KEPT_SECONDS:
                    path.unlink()

    def _of(self, job_id: str) -> Path:
        return self._folder / hashlib.sha256(job_id.encode(errors="backslashreplace")).hexdigest()[:16]

    def _file(self, job_id: str, number: int) -> Path:
        return self._of(job_id) / f"{number}.json"


def _load(path: Path, kind: type[T]) -> T | None:
    """What a file holds; None if it cannot be read, as when another version of Zeus wrote it."""
    try:
        return read(loads(path.read_text()), kind) if path.is_file() else None
    except (OSError, ValueError):
        return None
