"""What this machine knows of jobs and trials that a service keeps, for the time that the service is away.

One file for each, beside the reports that wait, so that `zeus run`, which asks, and the script, which tells, know the
same. The service's word counts wherever it can be asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zeus.errors import InputError, StoreError
from zeus.job import Ending, JobSpec, Outcome, Trial
from zeus.optimizer.batch_size.spool import write
from zeus.optimizer.batch_size.verbs import ALONE
from zeus.wire import from_json, to_json

KEPT_SECONDS = 30 * 86_400.0  # longer than any training goes without a word


@dataclass(frozen=True, slots=True)
class Mine:
    """A trial that was opened here."""

    trial: Trial
    so_far: Outcome | None = None
    key: str | None = None  # under which one that began without the service is reported


class Known:
    """A folder of what is known."""

    def __init__(self, folder: Path, wall: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._wall = wall

    def spec(self, job_id: str) -> JobSpec | None:
        """The job as last seen."""
        said = _load(self._of(job_id) / "job.json")
        with contextlib.suppress(InputError):
            return None if said is None else from_json(said, JobSpec)
        return None

    def keep_spec(self, spec: JobSpec) -> None:
        """Remember it; where that cannot be written, nothing is known later."""
        if self.spec(spec.id) != spec:
            with contextlib.suppress(StoreError):
                write(self._of(spec.id) / "job.json", to_json(spec))

    def trial(self, job_id: str, number: int) -> Mine | None:
        """A trial that was opened here and has not been told of to the service."""
        said = _load(self._file(job_id, number))
        if said is None:
            return None
        with contextlib.suppress(InputError, KeyError):
            so_far = None if said["so_far"] is None else from_json(said["so_far"], Outcome)
            return Mine(from_json(said["trial"], Trial, eta=self._eta(job_id)), so_far, said["key"])
        return None

    def _eta(self, job_id: str) -> float | None:
        """For a trial that Zeus 0.1 left here, which does not say its own."""
        spec = self.spec(job_id)
        return None if spec is None else spec.eta_knob

    def runs_alone(self, job_id: str) -> bool:
        """Whether a trial of it that the service has not heard of is running here."""
        numbers = [int(path.stem) for path in self._of(job_id).glob("[0-9]*.json")]
        some = [self.trial(job_id, number) for number in numbers if number >= ALONE]
        return any(mine is not None and mine.trial.ending is Ending.OPEN for mine in some)

    def keep(self, job_id: str, mine: Mine) -> None:
        """Remember it.

        Raises:
            StoreError: It cannot be written.
        """
        so_far = None if mine.so_far is None else to_json(mine.so_far)
        said = {"trial": to_json(mine.trial), "so_far": so_far, "key": mine.key}
        write(self._file(job_id, mine.trial.number), said)

    def drop(self, job_id: str, number: int) -> None:
        """The service knows better from now on."""
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
