"""`zeus run --on ray`: submits the job, and with `--watch` shows its log until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from zeus.cli.output import print_json
from zeus.errors import LaunchError
from zeus.exit_codes import DONE, INTERRUPTED
from zeus.launch.placement.ray.records import RayJobState
from zeus.launch.placement.ray.request import RayJob, job_id, request
from zeus.launch.placement.ray.variables_file import variables_file
from zeus.launch.placement.submission import Submission, carried, refuse_local_store
from zeus.lazy import require
from zeus.settings import quiet, run_id

if TYPE_CHECKING:
    from zeus.launch.placement.ray.jobs_client import RayJobs

Json = dict[str, Any]
LOOK_SECONDS = 5.0  # between two tries to reach a cluster that does not answer


def submit(submission: Submission) -> int:
    """Submit the job, and show it. The exit code is 0 once it is submitted; with `--watch`, that of the run."""
    job = _job(submission)
    if submission.dry_run:
        print_json(request(job))
        return DONE
    refuse_local_store("ray")
    require("--on ray", "ray", "Ray", "ray")
    from zeus.launch.placement.ray.jobs_client import RayJobs

    jobs = RayJobs(submission.settings.get("address"))
    jobs.submit(job, carried())
    if submission.watch:
        return _watched(jobs, job.id, submission.as_json)
    if submission.as_json:
        print_json({"place": "ray", "jobs": [{"id": job.id}]})
    else:
        click.echo(f"Submitted Ray job {job.id}.")
    return DONE


def _job(submission: Submission) -> RayJob:
    name = submission.file.spec.id
    own = job_id(name, uuid4().hex[:12])
    return RayJob(
        id=own,
        name=name,
        folder=str(submission.folder),
        command=submission.command(),
        run_id=run_id() or own,
        variables=str(variables_file(own)),
        **{key: value for key, value in submission.settings.items() if key != "address"},
    )


def _watched(jobs: RayJobs, own: str, as_json: bool) -> int:
    say = _silent if quiet() else _say
    say(f"Submitted Ray job {own}. Ctrl-C stops watching it; `ray job stop {own}` cancels it.\n")
    try:
        job = watch(jobs, own, say)
    except KeyboardInterrupt:
        click.echo(f"zeus: job {own} goes on. Cancel it with `ray job stop {own}`.", err=True)
        return INTERRUPTED
    if as_json:
        print_json({"place": "ray", "jobs": [{"id": own, "state": job.state, "exit_code": job.status}]})
    else:
        click.echo(job.sentence)
    return job.status


def watch(
    jobs: RayJobs, own: str, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> RayJobState:
    """Show the log of a Ray job until it has ended. If the cluster does not answer for a while, it goes on later.

    Args:
        jobs: The cluster.
        own: The id of the job.
        say: Shows text.
        sleep: Waits.
    """
    shown, silent = 0, ""
    while True:
        shown = jobs.tail(own, say, shown)
        try:
            job, silent = jobs.find(own), ""
            if job.is_final:
                return job
        except LaunchError as failed:
            if str(failed) != silent:
                silent = str(failed)
                say(f"zeus: {silent}. Still trying.\n")
        sleep(LOOK_SECONDS)


def _say(text: str) -> None:
    click.echo(text, err=True, nl=False)


def _silent(text: str) -> None:
    """Shows nothing (ZEUS_QUIET)."""
