"""A trial that a launcher has opened for this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.job import JobSpec
from zeus.monitor import ZeusMonitor
from zeus.monitor.gpus_of import gpus_of
from zeus.store import Store, open_store


class Launch(Protocol):
    def __call__(self, spec: JobSpec, monitor: ZeusMonitor | None = None, **more: object) -> RecurringJob: ...


@pytest.fixture
def launched_store(tmp_path: Path) -> Iterator[Store]:
    """Where launched trials are kept."""
    with closing(open_store(f"sqlite:///{tmp_path}/zeus.db")) as store:
        yield store


@pytest.fixture
def launched(launched_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Launch:
    """Opens a trial of a job as `zeus run` does, and says so in the environment; `more` are further ZEUS_ variables."""

    def launch(spec: JobSpec, monitor: ZeusMonitor | None = None, **more: object) -> RecurringJob:
        job = RecurringJob.register(LocalJobs(launched_store), spec)
        trial = job.ask(gpus_of(monitor or ZeusMonitor()))
        told = {"JOB_ID": job.spec.id, "TRIAL": trial.number, "BATCH_SIZE": trial.batch_size}
        told |= {"STORE": f"sqlite:///{tmp_path}/zeus.db", "OUTCOME_FILE": tmp_path / "outcome.json"}
        for name, value in (told | more).items():
            monkeypatch.setenv(f"ZEUS_{name}", str(value))
        return job

    return launch
