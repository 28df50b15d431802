"""Submits recurrences to Ray, and shows their log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from zeus.launch.placement.placement import ClusterPlacement, Task
from zeus.launch.placement.ray.request import RayJob, request
from zeus.launch.placement.ray.variables_file import variables_file
from zeus.launch.placement.submission import Submission, carried
from zeus.lazy import require
from zeus.settings import run_id

if TYPE_CHECKING:
    from zeus.launch.placement.ray.jobs_client import RayJobs


class Ray(ClusterPlacement):
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
            variables=str(variables_file(submission.run_id)),
            **settings,
        )
        self._run_id = run_id() or submission.run_id
        self._shown = 0  # letters of the log

    def plan(self, as_json: bool) -> str:
        """The arguments of the submission, always as JSON."""
        return json.dumps(request(self._job), indent=2) + "\n"

    def submit(self) -> str:
        """Submit the job. Returns its id."""
        return self._jobs.submit(self._job, {**carried(), run_id.variable: self._run_id})

    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        """The job. While it runs, this returns only when its log ends or cannot be read any more."""
        job = self._jobs.find(job_id)
        if job.state == "PENDING":
            return [replace(job, reason=f"waits until {self._job.needs} are free on one node")]
        self._shown = self._jobs.tail(job_id, show, self._shown)
        job = self._jobs.find(job_id)
        if job.state == "FAILED" and job.reason:  # Ray has ended it
            following = f"To continue it, submit it again with {run_id.variable}={self._run_id}"
            return [replace(job, reason=f"{job.reason}. {following}")]
        return [job]

    @cached_property
    def _jobs(self) -> RayJobs:
        require("--on ray", "ray", "Ray", "ray")
        from zeus.launch.placement.ray.jobs_client import RayJobs

        return RayJobs(self._address)
