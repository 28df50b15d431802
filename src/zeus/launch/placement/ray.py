"""Runs recurrences as a job of Ray.

    zeus run --on ray ──HTTP──▶ Ray: a node with enough GPUs: ray_start.py ──becomes──▶ zeus run
            └── --watch: the log of the job

Ray runs a job once. If its worker or its node is lost, the job has failed. Another job with the same ZEUS_RUN_ID
continues its recurrence.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zeus.errors import DONE, FAILED, TERMINATED, InputError, LaunchError
from zeus.launch.job_file.placements import RaySettings
from zeus.launch.placement.placement import ClusterPlacement, Task
from zeus.launch.placement.ray_start import leave, remove_left, variables_file
from zeus.launch.placement.submission import Submission, carried
from zeus.lazy import require
from zeus.ray_address import first_line, look_for
from zeus.settings import changed, run_id

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

log = logging.getLogger(__name__)

# Ray kills a job this long after `ray job stop` asked it to end. The command of a trial has 20 s to end.
GRACE_SECONDS = 60
CHATTY = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
ENDED = {"SUCCEEDED": DONE, "STOPPED": TERMINATED, "FAILED": FAILED}


class Ray(ClusterPlacement):
    """A cluster of Ray. Its job is the `zeus run` itself, on a node that has what it needs."""

    title = "Ray"
    cancels = "ray job stop"
    facts = ("id", "state", "exit_code")
    shows_log = True

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._settings = RaySettings(**submission.settings)
        self._file = variables_file(submission.run_id)
        self._run_id = run_id() or submission.run_id
        self._shown = 0  # letters of the log

    @property
    def request(self) -> dict[str, Any]:
        """The arguments for `JobSubmissionClient.submit_job`. They hold no secret, because Ray shows them to all."""
        asked, settings = self._submission, self._settings
        return {
            "entrypoint": entrypoint(asked.command(), str(self._file), str(asked.folder)),
            "entrypoint_num_gpus": settings.gpus,
            "entrypoint_num_cpus": settings.cpus,
            "entrypoint_resources": dict(settings.resources),
            "submission_id": asked.run_id,
            "metadata": {"job_name": f"zeus {asked.name}"},
            "runtime_env": {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(GRACE_SECONDS)}},
        }

    @property
    def needs(self) -> str:
        """What must be free on one node, in words."""
        amounts = {"GPU": self._settings.gpus, "CPU": self._settings.cpus, **self._settings.resources}
        *parts, last = [f"{amount:g} {name}" for name, amount in amounts.items() if amount]
        return f"{', '.join(parts)} and {last}" if parts else last

    def plan(self, as_json: bool) -> str:
        """The arguments of the submission, always as JSON."""
        return json.dumps(self.request, indent=2) + "\n"

    def submit(self) -> str:
        """Submit the job. Returns its id."""
        client = self._client
        remove_left(self._has_ended)
        leave(self._file, {**carried(), run_id.variable: self._run_id})
        try:
            return str(client.submit_job(**self.request))
        except BaseException as failed:
            self._file.unlink(missing_ok=True)
            if not isinstance(failed, _errors()):
                raise
            raise LaunchError(f"Ray did not take the job: {first_line(failed)}") from failed

    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        """The job. While it runs, this returns only when its log ends or cannot be read any more."""
        job = self._find(job_id)
        if job.state == "PENDING":
            return [replace(job, reason=f"waits until {self.needs} are free on one node")]
        self._tail(job_id, show)
        job = self._find(job_id)
        if job.state == "FAILED" and job.reason:  # Ray has ended it
            following = f"To continue it, submit it again with {run_id.variable}={self._run_id}"
            return [replace(job, reason=f"{job.reason}. {following}")]
        return [job]

    # ------------------------------------------------------------------ the client of Ray

    @cached_property
    def _client(self) -> JobSubmissionClient:
        require("--on ray", "ray", "Ray", "ray")
        from ray.job_submission import JobSubmissionClient

        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
        address = self._settings.address
        # Ray would prefer its variables to the address that was given.
        unset = {"RAY_ADDRESS": None, "RAY_API_SERVER_ADDRESS": None} if address else {}
        try:
            with changed(unset):
                look_for(address or "")
                return JobSubmissionClient(address)
        except _errors() as failed:
            where = f"no Ray cluster answers at {address}" if address else "no Ray cluster is found"
            raise (LaunchError if address else InputError)(
                f"{where} ({first_line(failed)}). Give the address of its dashboard, such as --set "
                "address=http://head:8265. It must have been started with ray[default]."
            ) from failed

    def _find(self, job_id: str) -> Task:
        """How a job is. If it has ended, no file of its variables is left behind."""
        client = self._client
        try:
            told: Any = client.get_job_info(job_id)
        except _errors() as failed:
            raise LaunchError(f"Ray does not answer: {first_line(failed)}") from failed
        job = read_job(job_id, str(getattr(told.status, "value", told.status)), told.driver_exit_code, told.message)
        if job.exit_code is not None:
            variables_file(job_id).unlink(missing_ok=True)
        return job

    def _has_ended(self, job_id: str) -> bool:
        try:
            return self._find(job_id).exit_code is not None
        except LaunchError:  # it may be a job of another cluster
            return False

    def _tail(self, job_id: str, write: Callable[[str], None]) -> None:
        """Pass on what the log of a job has beyond what was shown, until the job has ended or the connection breaks."""

        async def receive() -> None:
            read = 0
            async for text in self._client.tail_job_logs(job_id):
                read += len(text)
                if read > self._shown:
                    write(text[-(read - self._shown) :])
                    self._shown = read

        try:
            asyncio.run(receive())
        except Exception as failed:  # Ray, or the library under it; the caller asks how the job is
            log.debug("the log of %s broke off: %s", job_id, failed)


def entrypoint(command: Sequence[str], variables: str, folder: str) -> str:
    """The line that Ray's shell runs on the node.

    >>> entrypoint(["python", "-m", "zeus.cli", "run"], "/home/me/v.json", "/home/me")
    'exec python -m zeus.launch.placement.ray_start /home/me/v.json /home/me python -m zeus.cli run'
    """
    parts = [command[0], "-m", "zeus.launch.placement.ray_start", variables, folder, *command]
    return f"exec {shlex.join(parts)}"  # exec: no shell between Ray and `zeus run`


def read_job(job_id: str, state: str, run_exit_code: int | None, message: str | None) -> Task:
    """What Ray says about a job.

    Args:
        job_id: Its id.
        state: Its state.
        run_exit_code: What its `zeus run` ended with. None: it has not ended, or Ray has ended it.
        message: What Ray says beside that.
    """
    exit_code = (run_exit_code or ENDED[state]) if state in ENDED else None
    is_rays_own = state == "FAILED" and run_exit_code is None
    reason = message.splitlines()[0].rstrip(".") if is_rays_own and message else ""
    return Task(id=job_id, state=state, exit_code=exit_code, reason=reason)


def _errors() -> tuple[type[Exception], ...]:
    """What Ray's client raises. Errors of HTTP are OSErrors."""
    from ray.exceptions import RayError

    return RuntimeError, ValueError, OSError, RayError
