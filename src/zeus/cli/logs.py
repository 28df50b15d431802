"""`zeus logs`: prints the output of a trial."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from zeus.cli.output import warnings
from zeus.cli.stores import at_store, existing_jobs
from zeus.errors import InputError, NotKnown
from zeus.settings import put

if TYPE_CHECKING:
    from pathlib import Path

    from zeus.client.recurring import RecurringJob

LOOK_SECONDS = 0.5
PIECE_BYTES = 1 << 20


@click.command()
@click.argument("job")
@click.argument("trial", type=click.IntRange(min=1), required=False)
@click.option("--follow", "-f", is_flag=True, help="Print what is added, until the trial ends.")
@at_store
@click.pass_context
def logs(context: click.Context, job: str, trial: int | None, follow: bool, url: str | None) -> None:
    """Print the output of a trial: what the training command has written.

    TRIAL is the number of a trial, as `zeus jobs show` lists them. Default: the newest.

    Logs stay on the machine where `zeus run` ran the trial. Of a service, the last 100,000 bytes are printed if its own
    machine has the log.
    """
    from zeus.client.recurring import RecurringJob
    from zeus.client.trial_log import find_log

    context.with_resource(warnings())
    if url:
        put({"ZEUS_STORE": url})  # logs lie beside the store
    kept = existing_jobs(url)
    number = trial or _newest([one["number"] for one in kept.full(job)["tries"]], job)
    found = RecurringJob.find(kept, job)
    try:
        path = find_log(job, found.life, found.trial(number))
    except NotKnown:
        if follow:
            raise
        click.echo(kept.log_end(job, number), nl=False)
        return
    _copy(path, found if follow else None, number)


def _newest(numbers: list[int], job: str) -> int:
    if not numbers:
        raise InputError(f"job {job!r} has no trials yet.")
    return max(numbers)


def _copy(path: Path, running: RecurringJob | None, number: int) -> None:
    """Print a log. While this trial is running, print what is added too."""
    from zeus.job import Ending

    out = sys.stdout.buffer
    with path.open("rb") as file:
        while True:
            goes_on = running is not None and running.trial(number).ending is Ending.OPEN
            if os.fstat(file.fileno()).st_size < file.tell():  # it was shortened: its end was printed already
                file.seek(0, os.SEEK_END)
            while piece := file.read(PIECE_BYTES):
                out.write(piece)
            out.flush()
            if not goes_on:
                return
            time.sleep(LOOK_SECONDS)
