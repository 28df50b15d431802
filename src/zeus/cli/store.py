"""`zeus store status|backup|restore`: looks after the store itself. These work on the database, not over a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zeus.cli.format import plural
from zeus.cli.options import STORE_DEFAULT
from zeus.cli.output import print_json
from zeus.errors import InputError

_store = click.option("--store", "url", metavar="URL", help=f"Store, not a service. {STORE_DEFAULT}")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def store() -> None:
    """Show the state of a store, back it up and restore it."""


@store.command()
@_store
@_json
def status(url: str | None, as_json: bool) -> None:
    """Show where a store is, whether it can be used, how large it is, and what it holds."""
    from zeus.store import open_store
    from zeus.store.address import resolve, shown

    _need_file(url)
    opened = open_store(url)
    told = {"store": shown(resolve(url)), "trouble": opened.care.trouble(), **opened.care.status()}
    if as_json:
        print_json(told)
        return
    rows = told["rows"]
    click.echo(f"store: {told['store']}, {told['kind']}, version {told['version']}, {_size(told['bytes'])}")
    click.echo(f"  {told['trouble'] or 'it can be used'}")
    trials = plural(rows["trials"], "trial")
    click.echo(
        f"  {plural(rows['jobs'], 'job')}, {trials} ({told['running']} running), {rows['profiles']} power profiles"
    )
    click.echo(f"  last change: {told['last_change'] or 'none'}")
    click.echo(
        f"  {plural(rows['tokens'], 'token')}, {rows['audit']} audit entries, {plural(rows['logs'], 'log')} "
        f"({_size(told['log_letters'])})"
    )


@store.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@_store
@_json
def backup(file: Path, url: str | None, as_json: bool) -> None:
    """Write a store to a new FILE, as of one moment.

    The service and trainings may go on meanwhile. The backup holds all jobs, tokens, the audit and logs. It is
    compressed, and only you can read it.
    """
    from zeus.store import open_store

    _need_file(url)
    _tell(open_store(url).care.backup(file), file, "wrote", as_json)


@store.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--check", is_flag=True, help="Only check that the file is whole.")
@_store
@_json
def restore(file: Path, check: bool, url: str | None, as_json: bool) -> None:
    """Fill an empty store with the backup in FILE, all or nothing.

    The store may be of the other kind: a backup of SQLite can be restored into Postgres, and the other way round. It is
    created if it does not exist. Jobs continue as at the time of the backup.
    """
    from zeus.store import open_store
    from zeus.store.sql.backup import check as checked

    if check:
        _tell(checked(file), file, "checked", as_json)
    else:
        _tell(open_store(url).care.restore(file), file, "restored", as_json)


def _tell(found: Any, file: Path, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(file), **found._asdict()})
        return
    jobs, trials = plural(found.rows["zeus_jobs"], "job"), plural(found.rows["zeus_trials"], "trial")
    click.echo(f"{what} {file}: {jobs}, {trials}, {sum(found.rows.values())} rows, of {found.at}")


def _need_file(url: str | None) -> None:
    """Raise InputError if the store is a file that does not exist: looking at it must not create it."""
    from zeus.store.address import file_of, resolve, shown

    path = file_of(resolve(url))
    if path is not None and not path.exists():
        raise InputError(f"there is no store at {shown(resolve(url))}. To use another one, set --store or ZEUS_STORE.")


def _size(count: int) -> str:
    """A number of bytes for people.

    >>> _size(900), _size(2_500_000)
    ('900 B', '2.5 MB')
    """
    for unit, most in (("B", 1e3), ("kB", 1e6), ("MB", 1e9)):
        if count < most:
            return f"{count} B" if unit == "B" else f"{count / (most / 1e3):.1f} {unit}"
    return f"{count / 1e9:.1f} GB"
