"""`zeus run --on PLACE`: submits the job, and with `--watch` shows its progress until it has ended."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from zeus.cli.format import plural, which_trial
from zeus.cli.output import print_json
from zeus.errors import DONE, INTERRUPTED, InputError, LaunchError, ZeusError
from zeus.settings import quiet
from zeus.tariff.text import joules

if TYPE_CHECKING:
    from zeus.launch.placement.placement import ClusterPlacement, Placement, Task
    from zeus.launch.placement.submission import Submission

Json = dict[str, Any]
Show = Callable[[str], None]  # shows text as it is; a line ends with a line break
LOOK_SECONDS = 5.0  # between two looks at a job, so that many watchers do not burden a cluster
TRIALS_SECONDS = 10.0  # between two looks at the trials
LOCAL = "local"
# name -> module and class of the place
PLACEMENTS = {
    "slurm": ("zeus.launch.placement.slurm", "Slurm"),
    "ray": ("zeus.launch.placement.ray", "Ray"),
    "kubernetes": ("zeus.launch.placement.kubernetes", "Kubernetes"),
}
WATCHED = ("slurm", "ray")  # clusters; for Kubernetes, manifests are printed


def refuse_unused(place: str, settings: Sequence[str], watch: bool) -> None:
    """Raise InputError if an option has no meaning for this place."""
    if watch and place not in WATCHED:
        raise InputError(f"--watch needs --on {' or --on '.join(WATCHED)}. Leave it out, or add --on.")
    if settings and place == LOCAL:
        raise InputError(
            f"--set {settings[0]}: --set changes a key of [{'], ['.join(PLACEMENTS)}] and needs --on. For other keys, "
            "change the job file."
        )


def submit(name: str, submission: Submission, *, watch: bool, dry_run: bool, as_json: bool) -> int:
    """Run a job elsewhere. Returns 0 once it is submitted, or, if it is watched, the exit code of its run."""
    from zeus.launch.placement.placement import ClusterPlacement
    from zeus.launch.placement.submission import refuse_local_store

    module, kind = PLACEMENTS[name]
    place: Placement = getattr(importlib.import_module(module), kind)(submission)
    if dry_run or not isinstance(place, ClusterPlacement):
        click.echo(place.plan(as_json), nl=False)
        return DONE
    refuse_local_store(name)
    job_id = place.submit()
    if watch:
        return _watched(name, place, submission.name, job_id, as_json)
    if as_json:
        print_json({"place": name, "jobs": [{"id": job_id, **place.details}]})
    else:
        array = place.details.get("array")
        click.echo(f"Submitted {place.title} job {job_id}{f', tasks {array}' if array else ''}.")
    return DONE


def _watched(name: str, place: ClusterPlacement, job: str, job_id: str, as_json: bool) -> int:
    from zeus.launch.placement.placement import exit_code_of

    cancel = f"`{place.cancels} {job_id}`"
    show = _hide if quiet() else _show
    show(f"Submitted {place.title} job {job_id}. Ctrl-C stops watching it; {cancel} cancels it.\n")
    try:
        tasks = watch(place, job_id, show, None if place.shows_log else _Progress(job))
    except KeyboardInterrupt:
        click.echo(f"zeus: job {job_id} goes on. Cancel it with {cancel}.", err=True)
        return INTERRUPTED
    if as_json:
        print_json({"place": name, "jobs": [{fact: getattr(one, fact) for fact in place.facts} for one in tasks]})
    else:
        for one in tasks:
            click.echo(one.sentence + (f"; see {one.log}" if one.exit_code and one.log else ""))
    return exit_code_of(tasks)


def watch(
    place: ClusterPlacement,
    job_id: str,
    show: Show,
    progress: _Progress | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Task]:
    """Show changes of a job until it has ended. If the place does not answer for a while, it goes on later.

    Args:
        place: The cluster.
        job_id: Its id there.
        show: Shows text.
        progress: The open trials of the recurring job, if they are to be shown.
        sleep: Waits.

    Returns:
        The job, or its tasks.
    """
    from zeus.launch.placement.placement import is_over

    shown: dict[str, str] = {}
    silent, before = "", list[Any]()
    while True:
        try:
            tasks, silent = place.look(job_id, show), ""
        except LaunchError as failed:  # it restarts or is busy
            if str(failed) != silent:
                silent = str(failed)
                show(f"zeus: {silent.rstrip('.')}. Still trying.\n")
            sleep(LOOK_SECONDS)
            continue
        for one in tasks:
            if shown.get(one.id) != one.sentence:
                shown[one.id] = one.sentence
                show(f"{one.sentence}\n")
        if is_over(tasks, before):
            return tasks
        if progress is not None and any(one.state == "RUNNING" for one in tasks):
            for line in progress.lines():
                show(f"{line}\n")
        before = tasks
        sleep(LOOK_SECONDS)


class _Progress:
    """The open trials of a job, as lines. They come from the store, at most every TRIALS_SECONDS."""

    def __init__(self, job: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._job, self._clock = job, clock
        self._next = -float("inf")
        self._last: list[str] = []

    def lines(self) -> list[str]:
        """Lines that are new."""
        if self._clock() < self._next:
            return []
        self._next = self._clock() + TRIALS_SECONDS
        try:
            lines = [_running(one) for one in self._open_trials()]
        except ZeusError:  # it is only shown; and the job may not be registered yet
            return []
        new, self._last = [line for line in lines if line not in self._last], lines
        return new

    def _open_trials(self) -> list[Json]:
        from zeus.client.api import Excerpt
        from zeus.client.catalog import open_jobs

        jobs = open_jobs()
        try:
            running: list[Json] = jobs.full(self._job, Excerpt(tries=0, history=0))["running"]
            return running
        finally:
            jobs.close()


def _running(one: Json) -> str:
    parts = [f"batch size {one['batch_size']}", plural(one["epochs"] or 0, "epoch")]
    parts += [] if one["metric"] is None else [f"metric {one['metric']:g}"]
    parts += [] if one["joules"] is None else [joules(one["joules"])]
    return f"  {which_trial(one['recurrence'], one['attempt'])}: {', '.join(parts)}"


def _show(text: str) -> None:
    click.echo(text, err=True, nl=False)


def _hide(text: str) -> None:
    """Shows nothing (ZEUS_QUIET)."""
