"""`zeus jobs`: the recurring jobs of a store, what they have learnt and saved, and taking them elsewhere or away."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zeus.cli import jobs_text
from zeus.cli.output import print_json, warnings
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.store.address import file_of, resolve, shown
from zeus.store.api import utc

if TYPE_CHECKING:
    from zeus.jobs.catalog import Jobs

F = TypeVar("F", bound=Callable[..., Any])


def _common(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")(command)
    where = "The store, such as sqlite:///path or http://host:port; default: ZEUS_STORE, or the user's own."
    return click.option("--store", "url", metavar="URL", help=where)(command)


def _sure(command: F) -> F:
    command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
    return click.option("--force", is_flag=True, help="Even while a trial of the job is running.")(command)


@click.group()
@click.pass_context
def jobs(context: click.Context) -> None:
    """Show the recurring jobs of a store, and keep it tidy."""
    context.with_resource(warnings())


@jobs.command("list")
@_common
def list_jobs(url: str | None, as_json: bool) -> None:
    """All jobs: phase, recurrences, batch size, and the last recurrence against the default."""
    kept = _find(url)
    rows = [] if kept is None else kept.briefs()
    if as_json:
        print_json(rows)
    else:
        jobs_text.tell_list(rows, shown(resolve(url)))


@jobs.command()
@click.argument("job")
@click.option("--last", type=click.IntRange(min=0), default=20, show_default=True, help="Trials to show; 0: all.")
@_common
def show(job: str, last: int, url: str | None, as_json: bool) -> None:
    """One job: what it believes of each batch size, its trials, and its saving."""
    told = _existing(url).full(job)
    if as_json:
        print_json(told)
    else:
        jobs_text.tell_job(told, last, utc(datetime.now(UTC).timestamp()))


@jobs.command()
@click.argument("names", metavar="[JOB]...", nargs=-1)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Default: stdout.")
@_common
def export(names: tuple[str, ...], output: Path | None, url: str | None, as_json: bool) -> None:
    """All facts of these jobs, or of all, as JSON lines that `zeus jobs import` takes."""
    lines = _existing(url).export(names)
    if output is None:
        click.echo("".join(f"{line}\n" for line in lines), nl=False)
        return
    _write(output, lines)
    if as_json:
        print_json({"output": str(output), "lines": len(lines)})
    else:
        click.echo(f"zeus: {len(lines)} lines in {output}", err=True)


@jobs.command("import")
@click.argument("file", type=click.File(encoding="utf-8"), metavar="FILE|-")
@_common
def import_jobs(file: Any, url: str | None, as_json: bool) -> None:
    """Take in what `zeus jobs export` wrote, all or nothing; a job that is here already is refused."""
    try:
        lines = file.readlines()
    except UnicodeDecodeError as wrong:
        raise InputError(f"{file.name}: not text: {wrong}. Give a file that `zeus jobs export` wrote.") from wrong
    taken = _open(url).import_lines(lines)
    if as_json:
        print_json({"jobs": taken})
    else:
        click.echo("\n".join(taken) if taken else "zeus: no jobs in it")


@jobs.command()
@click.argument("job")
@_sure
@_common
def forget(job: str, yes: bool, force: bool, url: str | None, as_json: bool) -> None:
    """Remove a job with its trials and power profiles. `export` it first to keep them."""
    kept = _existing(url)
    trials = _unless_running(kept, job, force)
    some = "all its trials" if trials is None else f"its {trials} trials"
    _confirm(f"Remove {job!r} with {some} and its power profiles?", yes)
    kept.forget(job)
    if as_json:
        print_json({"job": job, "forgotten_trials": trials})
    else:
        click.echo(f"{job}: removed, with {some}")


@jobs.command()
@click.argument("job")
@click.option("--batch-size", type=int, metavar="N", help="Only let this size, which crashed, be offered again.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where history goes.")
@_sure
@_common
def reset(
    job: str, batch_size: int | None, output: Path | None, yes: bool, force: bool, url: str | None, as_json: bool
) -> None:
    """Let a job learn afresh: it stays registered, and its history goes into a file that `import` takes.

    With --batch-size nothing is forgotten: a size that crashed may be offered again.
    """
    kept = _existing(url)
    if batch_size is not None:
        _pardon(kept, job, batch_size)
        done: dict[str, Any] = {"job": job, "pardoned": batch_size}
        told = f"{job}: batch size {batch_size} may be offered again"
    else:
        seen, trials = kept.pulse().get(job), _unless_running(kept, job, force)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        output = output or Path(f"{''.join(c if c.isalnum() or c in '-_.' else '_' for c in job)}-{stamp}.jsonl")
        _confirm(f"Forget the {trials} trials and the power profiles of {job!r}? They are kept in {output}.", yes)
        _write(output, kept.export([job]))
        try:
            kept.restart(job, seen)  # what happened since is in no file
        except AlreadyDone:
            output.unlink()
            raise
        done = {"job": job, "forgotten_trials": trials, "output": str(output)}
        told = f"{job}: learns afresh; its {trials} trials are in {output}"
    if as_json:
        print_json(done)
    else:
        click.echo(told)


def _open(url: str | None) -> Jobs:
    from zeus.jobs.catalog import open_jobs

    found = open_jobs(url)
    click.get_current_context().call_on_close(found.close)
    return found


def _find(url: str | None) -> Jobs | None:
    """The jobs of a place; None where its file is not there, which looking must not create."""
    path = file_of(resolve(url))
    return None if path is not None and not path.exists() else _open(url)


def _existing(url: str | None) -> Jobs:
    found = _find(url)
    if found is None:
        raise InputError(
            f"there is no store at {shown(resolve(url))} yet: the first `zeus run` makes it. "
            "Name another with --store or ZEUS_STORE."
        )
    return found


def _unless_running(kept: Jobs, job: str, force: bool) -> int | None:
    """How many trials there are; None: it cannot be read. What a running one has used and learnt would be refused.

    A lease that lapsed says that nobody heard of its trial lately. It may run all the same, its store out of reach.
    """
    try:
        trials = kept.full(job)["tries"]
    except NotKnown:
        raise
    except InputError as wrong:
        if force:
            return None
        raise InputError(f"{wrong} Whether a trial of job {job!r} is running is not known: add --force.") from wrong
    running = [one for one in trials if one["leased_until"] is not None]
    if running and not force:
        numbers, until = ", ".join(str(one["number"]) for one in running), max(one["leased_until"] for one in running)
        raise InputError(
            f"job {job!r}: trial {numbers} is running, with a lease until {until}, or has ended and nobody told. "
            "Let it end; if it is dead, add --force."
        )
    return len(trials)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} Nobody can be asked here: add --yes to say so.")
    click.confirm(question, abort=True, err=True)


def _pardon(kept: Jobs, job: str, batch_size: int) -> None:
    from zeus.policy.view import Standing

    crashed = [row["batch_size"] for row in kept.full(job)["sizes"] if row["standing"] == Standing.CRASHED]
    if batch_size not in crashed:
        some = f"those that did: {crashed}" if crashed else "none did"
        raise InputError(f"job {job!r}: batch size {batch_size} has not crashed; {some}.")
    kept.pardon(job, batch_size)


def _write(output: Path, lines: list[str]) -> None:
    try:
        with output.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())  # what it tells of may be removed next
    except OSError as wrong:
        raise InputError(f"{output} cannot be written: {wrong.strerror}. Nothing was changed.") from wrong
