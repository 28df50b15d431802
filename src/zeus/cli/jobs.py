"""`zeus jobs`: the recurring jobs of a store, what they have learnt and saved, and taking them elsewhere or away."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from zeus.cli import jobs_text
from zeus.cli.output import print_json
from zeus.errors import InputError
from zeus.store import Store, open_store
from zeus.store.api import utc
from zeus.store.open import file_of, resolve, shown

F = TypeVar("F", bound=Callable[..., Any])


def _common(command: F) -> F:
    command = click.option("--json", "as_json", is_flag=True, help="JSON on stdout.")(command)
    where = "The store, such as sqlite:///path; default: ZEUS_STORE, or the user's own."
    return click.option("--store", "url", metavar="URL", help=where)(command)


def _sure(command: F) -> F:
    command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
    return click.option("--force", is_flag=True, help="Even while a trial of the job is running.")(command)


@click.group()
def jobs() -> None:
    """Show the recurring jobs of a store, and keep it tidy."""


@jobs.command("list")
@_common
def list_jobs(url: str | None, as_json: bool) -> None:
    """All jobs: phase, recurrences, batch size, and the last recurrence against the default."""
    from zeus.env import prices
    from zeus.optimizer.batch_size.report import brief, report

    store = _find(url)
    rows = [] if store is None else [brief(report(store, job.id), prices()) for job in store.jobs()]
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
    from zeus.env import prices
    from zeus.optimizer.batch_size.report import full, report

    told = full(report(_existing(url), job), prices())
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
    lines = _existing(url).export(names or None)
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
    taken = open_store(url).import_lines(lines)
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
    store = _existing(url)
    trials = _unless_running(store, job, force)
    _confirm(f"Remove {job!r} with its {trials} trials and its power profiles?", yes)
    store.forget(job)
    if as_json:
        print_json({"job": job, "forgotten_trials": trials})
    else:
        click.echo(f"{job}: removed, with {trials} trials")


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
    store = _existing(url)
    if batch_size is not None:
        _pardon(store, job, batch_size)
        done: dict[str, Any] = {"job": job, "pardoned": batch_size}
        told = f"{job}: batch size {batch_size} may be offered again"
    else:
        trials = _unless_running(store, job, force)
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        output = output or Path(f"{''.join(c if c.isalnum() or c in '-_.' else '_' for c in job)}-{stamp}.jsonl")
        _confirm(f"Forget the {trials} trials and the power profiles of {job!r}? They are kept in {output}.", yes)
        _start_afresh(store, job, output)
        done = {"job": job, "forgotten_trials": trials, "output": str(output)}
        told = f"{job}: learns afresh; its {trials} trials are in {output}"
    if as_json:
        print_json(done)
    else:
        click.echo(told)


def _find(url: str | None) -> Store | None:
    """The store; None where its file is not there, which looking must not create."""
    path = file_of(resolve(url))
    return None if path is not None and not path.exists() else open_store(url)


def _existing(url: str | None) -> Store:
    store = _find(url)
    if store is None:
        raise InputError(
            f"there is no store at {shown(resolve(url))} yet: the first `zeus run` makes it. "
            "Name another with --store or ZEUS_STORE."
        )
    return store


def _unless_running(store: Store, job: str, force: bool) -> int:
    """How many trials there are. A running one would tell its end to a job of another life, under the same number."""
    trials, now = store.trials(job), utc(datetime.now(UTC).timestamp())
    running = [kept for kept in trials if kept.leased_until is not None and kept.leased_until > now]
    if running and not force:
        numbers = ", ".join(str(kept.trial.number) for kept in running)
        until = max(kept.leased_until or "" for kept in running)
        raise InputError(
            f"job {job!r}: trial {numbers} is running, with a lease until {until}. Let it end; "
            "if it is dead, wait until then or add --force."
        )
    return len(trials)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} Nobody can be asked here: add --yes to say so.")
    click.confirm(question, abort=True, err=True)


def _pardon(store: Store, job: str, batch_size: int) -> None:
    from zeus.optimizer.batch_size.report import report
    from zeus.optimizer.batch_size.view import Standing

    crashed = [row.batch_size for row in report(store, job).sizes if row.standing is Standing.CRASHED]
    if batch_size not in crashed:
        some = f"those that did: {crashed}" if crashed else "none did"
        raise InputError(f"job {job!r}: batch size {batch_size} has not crashed; {some}.")
    store.pardon(job, batch_size)


def _start_afresh(store: Store, job: str, output: Path) -> None:
    from zeus.optimizer.batch_size.policy import find_policy

    spec = store.job(job).spec
    version = find_policy(spec.policy).version
    _write(output, store.export([job]))
    store.forget(job)
    store.register(spec, policy_version=version)


def _write(output: Path, lines: list[str]) -> None:
    try:
        with output.open("x", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    except OSError as wrong:
        raise InputError(f"{output} cannot be written: {wrong.strerror}. Nothing was changed.") from wrong
