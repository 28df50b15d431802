"""What this machine knows of jobs and trials that a store keeps, for the time that the store is away.

One file for each, beside the messages that wait, so that `zeus run`, which asks, and the script, which tells, know the
same. Where the disk is full, at least this process knows. The store's word counts wherever it can be asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zeus.errors import InputError, StoreError
from zeus.job import Ending, JobSpec, Outcome, Trial
from zeus.job.wire import from_json, to_json
from zeus.jobs.api import ALONE
from zeus.jobs.remote.spool import write

log = logging.getLogger(__name__)

KEPT_SECONDS = 30 * 86_400.0  # longer than any training goes without a word


@dataclass(frozen=True, slots=True)
class Mine:
    """A trial that was opened here."""

    trial: Trial
    so_far: Outcome | None = None
    key: str | None = None  # under which one that began without the store is reported
    spec: JobSpec | None = None  # by which that one runs
    life: str = ""  # of the job that it is for, as last seen when it began
    is_heard: bool = False  # the store has taken in how it ended


class Known:
    """A folder of what is known."""

    def __init__(self, folder: Path, wall: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._wall = wall
        self._unwritten: dict[tuple[str, int], Mine] = {}

    def spec(self, job_id: str) -> JobSpec | None:
        """The job as last seen."""
        said = _load(self._of(job_id) / "job.json") or {}
        said.pop("life", None)
        with contextlib.suppress(InputError):
            return from_json(said, JobSpec) if said else None
        return None

    def life(self, job_id: str) -> str:
        """The life that the job was last seen in; empty: not known."""
        return str((_load(self._of(job_id) / "job.json") or {}).get("life", ""))

    def keep_spec(self, spec: JobSpec, life: str = "") -> None:
        """Remember the job; where that cannot be written, nothing is known later."""
        path = self._of(spec.id) / "job.json"
        with contextlib.suppress(StoreError, OSError):
            if (self.spec(spec.id), self.life(spec.id)) != (spec, life):
                write(path, {**to_json(spec), "life": life})
            else:
                os.utime(path)  # in use: not to be swept

    def trial(self, job_id: str, number: int) -> Mine | None:
        """A trial that was opened here."""
        if (unwritten := self._unwritten.get((job_id, number))) is not None:
            return unwritten
        said = _load(self._file(job_id, number))
        if said is None:
            return None
        with contextlib.suppress(InputError, KeyError):
            so_far = None if said["so_far"] is None else from_json(said["so_far"], Outcome)
            trial = from_json(said["trial"], Trial, eta=self._eta(job_id))
            spec = None if said.get("spec") is None else from_json(said["spec"], JobSpec)
            life = str(said.get("life") or "")
            return Mine(trial, so_far, said["key"], spec=spec, life=life, is_heard=bool(said.get("heard")))
        return None

    def _eta(self, job_id: str) -> float | None:
        """For a trial that Zeus 0.1 left here, which does not say its own."""
        spec = self.spec(job_id)
        return None if spec is None else spec.eta_knob

    def runs_alone(self, job_id: str) -> bool:
        """Whether a trial of it that the store has not heard of is running here."""
        numbers = [int(path.stem) for path in self._of(job_id).glob("[0-9]*.json")]
        some = [self.trial(job_id, number) for number in numbers if number >= ALONE]
        return any(mine is not None and mine.trial.ending is Ending.OPEN for mine in some)

    def keep(self, job_id: str, mine: Mine) -> None:
        """Remember it: on disk, or else in this process."""
        number = mine.trial.number
        so_far = None if mine.so_far is None else to_json(mine.so_far)
        spec = None if mine.spec is None else to_json(mine.spec)
        said = {"trial": to_json(mine.trial), "so_far": so_far, "key": mine.key, "heard": mine.is_heard}
        said |= {"spec": spec, "life": mine.life}
        try:
            write(self._file(job_id, number), said)
            self._unwritten.pop((job_id, number), None)
        except StoreError as full:
            self._unwritten[job_id, number] = mine
            log.debug("trial %s of %r is known to this process alone: %s", number, job_id, full)

    def heard(self, job_id: str, trial: Trial) -> None:
        """The store knows how it ended. Whoever opened it may look when the store is away again."""
        if (mine := self.trial(job_id, trial.number)) is not None:
            self.keep(job_id, replace(mine, trial=trial, is_heard=True))

    def drop(self, job_id: str, number: int, trial_id: str = "") -> None:
        """The store knows better from now on, if this is the trial that is known here."""
        if trial_id and (mine := self.trial(job_id, number)) is not None and mine.trial.id != trial_id:
            return
        self._unwritten.pop((job_id, number), None)
        with contextlib.suppress(OSError):
            self._file(job_id, number).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what nobody has touched for long."""
        for path in self._folder.glob("*/*.json"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < self._wall() - KEPT_SECONDS:
                    path.unlink()

    def _of(self, job_id: str) -> Path:
        return self._folder / hashlib.sha256(job_id.encode()).hexdigest()[:16]

    def _file(self, job_id: str, number: int) -> Path:
        return self._of(job_id) / f"{number}.json"


def _load(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None
