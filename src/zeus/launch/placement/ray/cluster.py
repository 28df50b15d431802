"""Submits recurrences to Ray, and shows their log."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from zeus.launch.placement.place import Cluster, Task
from zeus.launch.placement.ray.request import RayJob, request
from zeus.launch.placement.ray.variables_file import variables_file
from zeus.launch.placement.submission import Submission, carried
from zeus.lazy import require
from zeus.settings import run_id

if TYPE_CHECKING:
    from zeus.launch.placement.ray.jobs_client import RayJobs


class Ray(Cluster):
    """A cluster of Ray."""

    title = "Ray"
    cancels = "ray job stop"
    facts = ("id", "state", "exit_code")
    shows_log = True

    def __init__(self, submission: Submission) -> None:
        settings = {**submission.settings}
        self._address: str | None = settings.pop("address", None)
        self._job = RayJob(
            id=submission.run_id,
            name=submission.name,
            folder=str(submission.folder),
            command=submission.command(),
            run_id=run_id() or submission.run_id,
            variables=str(variables_file(submission.run_id)),
            **settings,
        )
        self._shown = 0  # letters of the log

    def plan(self, as_json: bool) -> str:
        """The arguments of the submission, always as JSON."""
        return json.dumps(request(self._job), indent=2) + "\n"

    def submit(self) -> str:
        """Submit the job. Returns its id."""
        return self._jobs.submit(self._job, carried())

    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        """The job, once its log ends or cannot be read any more."""
        self._shown = self._jobs.tail(job_id, show, self._shown)
        return [self._jobs.find(job_id)]

    @cached_property
    def _jobs(self) -> RayJobs:
        require("--on ray", "ray", "Ray", "ray")
        from zeus.launch.placement.ray.jobs_client import RayJobs

        return RayJobs(self._address)
