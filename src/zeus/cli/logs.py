"""`zeus logs`: prints the output of a trial."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from zeus.cli.output import warnings
from zeus.cli.stores import at_store, existing_jobs
from zeus.errors import InputError, NotKnown
from zeus.settings import put

if TYPE_CHECKING:
    from pathlib import Path

LOOK_SECONDS = 0.5
ASK_SECONDS = 3.0  # between two looks at a log that is in the store
PIECE_BYTES = 1 << 20
MARK = 400  # letters by which the end of what was printed is found again in a newer tail


@click.command()
@click.argument("job")
@click.argument("trial", type=click.IntRange(min=1), required=False)
@click.option("--follow", "-f", is_flag=True, help="Print what is added, until the trial ends.")
@at_store
@click.pass_context
def logs(context: click.Context, job: str, trial: int | None, follow: bool, url: str | None) -> None:
    """Print the output of a trial: what the training command has written.

    TRIAL is the number of a trial, as `zeus jobs show` lists them. Default: the newest.

    On the machine where `zeus run` ran the trial, all of the log is printed. From any other machine, its end is: `zeus
    run` sends the last 64 KiB to the store.
    """
    from zeus.client.recurring import RecurringJob
    from zeus.client.trial_log import find_log
    from zeus.job import Ending

    context.with_resource(warnings())
    if url:
        put({"ZEUS_STORE": url})  # logs lie beside the store
    kept = existing_jobs(url)
    number = trial or _newest([one["number"] for one in kept.trials(job, newest=1)], job)
    found = RecurringJob.find(kept, job)

    def goes_on() -> bool:
        return follow and found.trial(number).ending is Ending.OPEN

    path = find_log(job, found.generation, found.trial(number))
    if path is not None:
        _copy(path, goes_on)
    else:
        _follow(lambda: str(kept.told_log(job, number)["log"]), goes_on)


def _newest(numbers: list[int], job: str) -> int:
    if not numbers:
        raise InputError(f"job {job!r} has no trials yet.")
    return max(numbers)


def _copy(path: Path, goes_on: Callable[[], bool]) -> None:
    """Print a log. While the trial is running, print what is added too."""
    out = sys.stdout.buffer
    with path.open("rb") as file:
        while True:
            again = goes_on()
            if os.fstat(file.fileno()).st_size < file.tell():  # it was shortened: its end was printed already
                file.seek(0, os.SEEK_END)
            while piece := file.read(PIECE_BYTES):
                out.write(piece)
            out.flush()
            if not again:
                return
            time.sleep(LOOK_SECONDS)


def _follow(read: Callable[[], str], goes_on: Callable[[], bool]) -> None:
    """Print the end of a log that is in the store, and while the trial is running what is added to it."""
    printed = ""
    while True:
        again = goes_on()
        try:
            tail = read()
        except NotKnown:
            if not again:  # it may still come
                raise
        else:
            click.echo(added(printed, tail), nl=False)
            printed = tail
        if not again:
            return
        time.sleep(ASK_SECONDS)


def added(before: str, now: str) -> str:
    """What a newer tail of a log has after the one before.

    >>> added("one\\ntwo\\n", "two\\nthree\\n"), added("", "one\\n"), added("one\\n", "quite other\\n")
    ('three\\n', 'one\\n', 'quite other\\n')
    """
    if now.startswith(before):
        return now[len(before) :]
    for length in range(min(MARK, len(before), len(now)), 0, -1):
        at = now.rfind(before[-length:]) if length == MARK else 0 if now.startswith(before[-length:]) else -1
        if at >= 0:
            return now[at + length :]
    return now
