"""`zeus run --on slurm`: submits the job, and with `--watch` shows its progress until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

import click

from zeus.cli.jobs_text import many
from zeus.cli.output import print_json
from zeus.cli.run_view import EVERY_SECONDS
from zeus.errors import LaunchError, ZeusError
from zeus.exit_codes import DONE, INTERRUPTED
from zeus.launch.placement.slurm import batch_job, find_tasks, submit_job
from zeus.launch.placement.slurm_records import MAY_RETURN, BatchTask, status_of
from zeus.launch.placement.slurm_script import batch_script
from zeus.launch.placement.submission import Submission, refuse_local_store
from zeus.settings import quiet
from zeus.tariff.text import joules

Json = dict[str, Any]
LOOK_SECONDS = 5.0  # between two looks at the queue, so that many watchers do not burden the controller


def submit(submission: Submission) -> int:
    """Submit the job, and show it. The exit code is 0 once it is submitted; with `--watch`, that of the run."""
    job = batch_job(submission, uuid4().hex)
    if submission.dry_run:
        script = batch_script(job)
        print_json({"place": "slurm", "script": script}) if submission.as_json else click.echo(script, nl=False)
        return DONE
    refuse_local_store("slurm")
    job_id = submit_job(job)
    array = submission.settings.get("array")
    if submission.watch:
        return _watched(submission, job_id)
    if submission.as_json:
        print_json({"place": "slurm", "jobs": [{"id": job_id, "array": array}]})
    else:
        click.echo(f"Submitted Slurm job {job_id}" + (f", tasks {array}." if array else "."))
    return DONE


def _watched(submission: Submission, job_id: str) -> int:
    say = _silent if quiet() else _say
    say(f"Submitted Slurm job {job_id}. Ctrl-C stops watching it; `scancel {job_id}` cancels it.")
    try:
        tasks = watch(job_id, submission.file.spec.id, say)
    except KeyboardInterrupt:
        click.echo(f"zeus: job {job_id} goes on. Cancel it with `scancel {job_id}`.", err=True)
        return INTERRUPTED
    if submission.as_json:
        print_json({"place": "slurm", "jobs": [_task(one) for one in tasks]})
    else:
        for one in tasks:
            click.echo(_sentence(one) + (f"; see {one.log}" if one.status != DONE and one.log else ""))
    return status_of(tasks)


def watch(
    job_id: str, name: str, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> list[BatchTask]:
    """Show changes of a Slurm job until it has ended. Returns its tasks.

    Args:
        job_id: Its id in Slurm.
        name: The recurring job, whose open trials are shown.
        say: Shows a line.
        sleep: Waits.
    """
    shown: dict[str, str] = {}
    progress, silent, before = _Progress(name), "", list[BatchTask]()
    while True:
        try:
            tasks, silent = find_tasks(job_id), ""
        except LaunchError as failed:  # the controller restarts or is busy
            if str(failed) != silent:
                silent = str(failed)
                say(f"{silent} Still trying.")
            sleep(LOOK_SECONDS)
            continue
        for one in tasks:
            line = _sentence(one)
            if shown.get(one.id) != line:
                shown[one.id] = line
                say(line)
        unsure = any(one.state in MAY_RETURN for one in tasks) and tasks != before
        if all(one.is_final for one in tasks) and not unsure:
            return tasks
        if any(one.state == "RUNNING" for one in tasks):
            for line in progress.lines():
                say(line)
        before = tasks
        sleep(LOOK_SECONDS)


class _Progress:
    """The open trials of a job, as lines. They come from the store, at most every EVERY_SECONDS."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._next = -float("inf")
        self._last: list[str] = []

    def lines(self) -> list[str]:
        """Lines that are new."""
        if self._clock() < self._next:
            return []
        self._next = self._clock() + EVERY_SECONDS
        try:
            lines = [_trial(one) for one in self._running()]
        except ZeusError:  # it is only shown; and the job may not be registered yet
            return []
        new, self._last = [line for line in lines if line not in self._last], lines
        return new

    def _running(self) -> list[Json]:
        from zeus.client.catalog import open_jobs

        jobs = open_jobs()
        try:
            running: list[Json] = jobs.full(self._name)["running"]
            return running
        finally:
            jobs.close()


def _trial(one: Json) -> str:
    epochs = many(one["epochs"] or 0, "epoch")
    metric = "" if one["metric"] is None else f", metric {one['metric']:g}"
    used = "" if one["joules"] is None else f", {joules(one['joules'])}"
    which = f"recurrence {one['recurrence']}, try {one['attempt']}"
    return f"  {which}: batch size {one['batch_size']}, {epochs}{metric}{used}"


def _sentence(task: BatchTask) -> str:
    words = task.state.lower().replace("_", " ")
    if task.state == "RUNNING" and task.nodes:
        words += f" on {task.nodes}"
    elif task.state == "PENDING" and task.reason:
        words += f" ({task.reason})"
    elif task.is_final and task.state != "COMPLETED":
        words += f", exit code {task.status}"
    again = f", requeued {many(task.restarts, 'time')}" if task.restarts else ""
    comment = f"; {task.comment}" if task.is_final and task.comment else ""
    return f"job {task.id}: {words}{again}{comment}"


def _task(task: BatchTask) -> Json:
    return {
        "id": task.id,
        "state": task.state,
        "exit_code": task.status if task.is_final else None,
        "restarts": task.restarts,
        "nodes": task.nodes,
        "log": task.log or None,
        "comment": task.comment,
    }


def note_energy(job_id: str, rows: Sequence[Json]) -> None:
    """Write into the comment of this Slurm job what the recurrences of this run used. Says so if it is not allowed."""
    from zeus.launch.placement.slurm import set_comment
    from zeus.launch.placement.slurm_records import energy_comment

    known = [row["known_joules"] for row in rows if row["known_joules"] is not None]
    seconds = [row["seconds"] for row in rows]
    whole = None if not seconds or None in seconds else sum(seconds)
    unknown = sum(row["unknown_tries"] for row in rows)
    energy = energy_comment(sum(known) if known else None, whole, [row["number"] for row in rows], unknown)
    try:
        set_comment(job_id, energy)
    except (ZeusError, OSError) as refused:
        click.echo(f"zeus: the energy could not be written into the comment of the job: {refused}", err=True)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _silent(line: str) -> None:
    """Shows nothing (ZEUS_QUIET)."""
