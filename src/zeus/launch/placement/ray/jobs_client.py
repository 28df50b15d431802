"""Submits jobs to Ray over the HTTP address of its head node, and asks about them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ray.exceptions import RayError
from ray.job_submission import JobSubmissionClient

from zeus.errors import InputError, LaunchError
from zeus.launch.placement.placement import Task
from zeus.launch.placement.ray.records import read_job
from zeus.launch.placement.ray.request import RayJob, request
from zeus.launch.placement.ray.variables_file import leave, remove_left, variables_file
from zeus.ray_address import first_line, look_for
from zeus.settings import changed

CHATTY = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
CANNOT = (RuntimeError, ValueError, OSError, RayError)  # what Ray's client raises; errors of HTTP are OSErrors


class RayJobs:
    """The jobs of a Ray cluster.

    Args:
        address: `http://head:8265`, `head:6379` or `ray://head:10001`. None: RAY_ADDRESS, or the Ray of this machine.

    Raises:
        LaunchError: No cluster answers there.
        InputError: No address is given, and no Ray runs here.
    """

    def __init__(self, address: str | None = None) -> None:
        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.ERROR)
        # Ray would prefer its variables to the address that was given.
        unset = {"RAY_ADDRESS": None, "RAY_API_SERVER_ADDRESS": None} if address else {}
        try:
            with changed(unset):
                look_for(address or "")
                self._client = JobSubmissionClient(address)
        except CANNOT as failed:
            where = f"no Ray cluster answers at {address}" if address else "no Ray cluster is found"
            raise (LaunchError if address else InputError)(
                f"{where} ({first_line(failed)}). Give the address of its dashboard, such as --set "
                "address=http://head:8265. It must have been started with ray[default]."
            ) from failed

    def submit(self, job: RayJob, variables: Mapping[str, str]) -> str:
        """Submit a job. Returns its id.

        Args:
            job: The job.
            variables: The variables of Zeus for the run, which may hold secrets.
        """
        remove_left(self._has_ended)
        leave(file := Path(job.variables), variables)
        try:
            return str(self._client.submit_job(**request(job)))
        except BaseException as failed:
            file.unlink(missing_ok=True)
            if not isinstance(failed, CANNOT):
                raise
            raise LaunchError(f"Ray did not take the job: {first_line(failed)}") from failed

    def find(self, job_id: str) -> Task:
        """How a job is. If it has ended, no file of its variables is left behind.

        Raises:
            LaunchError: Ray does not answer, or does not know the job.
        """
        try:
            told: Any = self._client.get_job_info(job_id)
        except CANNOT as failed:
            raise LaunchError(f"Ray does not answer: {first_line(failed)}") from failed
        state = str(getattr(told.status, "value", told.status))
        job = read_job(job_id, state, told.driver_exit_code, told.message or "")
        if job.exit_code is not None:
            variables_file(job_id).unlink(missing_ok=True)
        return job

    def _has_ended(self, job_id: str) -> bool:
        try:
            return self.find(job_id).exit_code is not None
        except LaunchError:  # it may be a job of another cluster
            return False

    def tail(self, job_id: str, write: Callable[[str], None], begin: int = 0) -> int:
        """Pass on the log of a job from a letter on, until the job has ended or the connection is lost.

        Returns:
            The letters of the log until there.
        """
        self._read = 0

        async def receive() -> None:
            async for text in self._client.tail_job_logs(job_id):
                self._read += len(text)
                if self._read > begin:
                    write(text[-(self._read - begin) :])

        try:
            asyncio.run(receive())
        except Exception as failed:  # Ray, or the library under it; the caller asks how the job is
            logging.getLogger(__name__).debug("the log of %s broke off: %s", job_id, failed)
        return max(begin, self._read)
