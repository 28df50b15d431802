"""`zeus jobs`: show, export, import, remove and reset the recurring jobs of a store or a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zeus.cli import jobs_care, jobs_text
from zeus.cli.format import plural
from zeus.cli.output import print_json, warnings
from zeus.cli.stores import at_store, existing_jobs, find_jobs, open_jobs, use_one_blas_thread
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.store.address import resolve, shown
from zeus.store.api import utc

if TYPE_CHECKING:
    from zeus.client.api import JobsApi

F = TypeVar("F", bound=Callable[..., Any])


def _common(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return at_store(command)


def _sure(command: F) -> F:
    command = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")(command)
    return click.option("--force", is_flag=True, help="Do it even if a trial of the job is running.")(command)


class _Jobs(click.Group):
    """Says which command removes a job, because many look for it under another name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] in ("delete", "remove", "rm"):
            ctx.fail(f"No such command {args[0]!r}. To remove a job with its trials, use `zeus jobs forget`.")
        return super().resolve_command(ctx, args)


@click.group(cls=_Jobs)
@click.pass_context
def jobs(context: click.Context) -> None:
    """Show what recurring jobs have learnt, used and saved. Export, import, reset or remove them."""
    use_one_blas_thread()
    context.with_resource(warnings())


for _command in (jobs_care.pause, jobs_care.resume, jobs_care.audit):
    jobs.add_command(_command)


@jobs.command("list")
@_common
def list_jobs(url: str | None, as_json: bool) -> None:
    """List all jobs.

    Each line compares the job with its default batch size at the highest power limit.
    """
    kept = find_jobs(url)
    rows = [] if kept is None else kept.briefs()
    if as_json:
        print_json(rows)
    else:
        jobs_text.tell_list(rows, shown(resolve(url)))


@jobs.command()
@click.argument("job")
@click.option(
    "--last", type=click.IntRange(min=0), default=20, show_default=True, help="Number of trials to show; 0 shows all."
)
@_common
def show(job: str, last: int, url: str | None, as_json: bool) -> None:
    """Show one job: its batch sizes, its trials, and what it saved."""
    told = existing_jobs(url).full(job)
    if as_json:
        print_json(told)
    else:
        jobs_text.tell_job(told, last, utc(datetime.now(UTC).timestamp()))


@jobs.command()
@click.argument("names", metavar="[JOB]...", nargs=-1)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="File to write. Default: stdout."
)
@_common
def export(names: tuple[str, ...], output: Path | None, url: str | None, as_json: bool) -> None:
    """Write jobs as JSON lines, which `zeus jobs import` reads.

    Without JOB, this writes all jobs.
    """
    lines = existing_jobs(url).export(names)
    if output is None:
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
        return
    _write(output, lines)
    if as_json:
        print_json({"output": str(output), "lines": len(lines)})
    else:
        click.echo(f"zeus: wrote {len(lines)} lines to {output}", err=True)


@jobs.command("import")
@click.argument("file", type=click.File(encoding="utf-8"), metavar="FILE|-")
@_common
def import_jobs(file: Any, url: str | None, as_json: bool) -> None:
    """Import jobs from a file that `zeus jobs export` wrote.

    If the store already has one of the jobs, nothing is imported. Use - to read from stdin.
    """
    try:
        lines = file.readlines()
    except UnicodeDecodeError as wrong:
        raise InputError(
            f"{file.name} is not UTF-8 text: {wrong}. Give a file that `zeus jobs export` wrote."
        ) from wrong
    taken = open_jobs(url).import_lines(lines)
    if as_json:
        print_json({"jobs": taken})
    else:
        click.echo("\n".join(taken) if taken else "zeus: the file holds no jobs")


@jobs.command()
@click.argument("job")
@_sure
@_common
def forget(job: str, yes: bool, force: bool, url: str | None, as_json: bool) -> None:
    """Remove a job with its trials and power profiles.

    To keep a copy, use `zeus jobs export` first.
    """
    kept = existing_jobs(url)
    trials = _unless_running(kept, job, force)
    some = f"its {_trials(trials)}"
    _confirm(f"Remove {job!r} with {some} and its power profiles?", yes)
    kept.forget(job)
    if as_json:
        print_json({"job": job, "forgotten_trials": trials})
    else:
        click.echo(f"{job}: removed, with {some}")
        if trials:
            click.echo("If a job of this name runs again, its trial numbers go on. None is used twice.")


@jobs.command()
@click.argument("job")
@click.option("--batch-size", type=int, metavar="N", help="Allow this crashed batch size again, and forget nothing.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File to save the history to. Default: JOB-TIME.jsonl.",
)
@_sure
@_common
def reset(
    job: str, batch_size: int | None, output: Path | None, yes: bool, force: bool, url: str | None, as_json: bool
) -> None:
    """Make a job forget what it has learnt.

    The job stays registered. Its trials and power profiles are saved to a file that `zeus jobs import` can read.

    With --batch-size, nothing is forgotten. Zeus may then use that batch size again, even if it crashed.
    """
    kept = existing_jobs(url)
    if batch_size is not None:
        _pardon(kept, job, batch_size)
        done: dict[str, Any] = {"job": job, "pardoned": batch_size}
        told = f"{job}: batch size {batch_size} may be offered again"
    else:
        seen, trials = kept.pulse().get(job), _unless_running(kept, job, force)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        output = output or Path(f"{''.join(c if c.isalnum() or c in '-_.' else '_' for c in job)}-{stamp}.jsonl")
        _confirm(
            f"Forget the {_trials(trials)} and the power profiles of {job!r}? They will be saved to {output}.", yes
        )
        _write(output, kept.export([job]))
        try:
            kept.restart(job, seen)  # anything newer is not in the file, and must not be lost
        except AlreadyDone:
            output.unlink()
            raise
        done = {"job": job, "forgotten_trials": trials, "output": str(output)}
        told = f"{job}: reset; saved its {_trials(trials)} to {output}"
    if as_json:
        print_json(done)
    else:
        click.echo(told)


def _unless_running(kept: JobsApi, job: str, force: bool) -> int | None:
    """The number of trials; None if the job cannot be read.

    A running trial could no longer report its outcome. A lapsed lease does not prove that a trial has ended: it may be
    running without reaching its store.

    Raises:
        InputError: A trial is running, or may be, and `force` is false.
    """
    try:
        trials = kept.trials(job)
    except NotKnown:
        raise
    except InputError as wrong:
        if force:
            return None
        raise InputError(
            f"{wrong} So it is not known whether a trial of job {job!r} is running. Add --force to go ahead."
        ) from wrong
    running = [one for one in trials if one["leased_until"] is not None]
    if running and not force:
        numbers, until = ", ".join(str(one["number"]) for one in running), max(one["leased_until"] for one in running)
        raise InputError(
            f"job {job!r}: trial {numbers} is running; its lease ends at {until}. Wait for it to end. If it has died "
            "without a report, add --force."
        )
    return len(trials)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} There is no terminal to ask on. Add --yes to confirm.")
    click.confirm(question, abort=True, err=True)


def _trials(count: int | None) -> str:
    return "trials" if count is None else plural(count, "trial")


def _pardon(kept: JobsApi, job: str, batch_size: int) -> None:
    from zeus.client.api import Excerpt
    from zeus.policy.view import Standing

    sizes = kept.full(job, Excerpt(tries=0, history=0))["sizes"]
    crashed = [row["batch_size"] for row in sizes if row["standing"] == Standing.CRASHED]
    if batch_size not in crashed:
        some = f"these have: {crashed}" if crashed else "none has"
        raise InputError(f"job {job!r}: batch size {batch_size} has not crashed; {some}.")
    kept.pardon(job, batch_size)


def _write(output: Path, lines: list[str]) -> None:
    try:
        with output.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())  # the caller may remove the originals next
    except OSError as wrong:
        raise InputError(f"{output} cannot be written: {wrong.strerror}. Nothing was changed.") from wrong
