"""`zeus token create|list|revoke`: manages the tokens that `zeus serve` accepts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

import click

from zeus.cli.options import STORE_DEFAULT
from zeus.cli.output import print_json, print_table
from zeus.errors import InputError

MOST_DAYS = 3650

_store = click.option("--store", "url", metavar="URL", help=f"Store of the service. {STORE_DEFAULT}")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def token() -> None:
    """Create, list and revoke tokens for `zeus serve`."""


@token.command()
@click.argument("name")
@click.option("--scope", type=click.Choice(["read", "report", "admin"]), default="report", show_default=True,
              help="What the token allows.")  # fmt: skip
@click.option("--team", default="", metavar="TEAM", help="Team whose jobs the token may change, besides its own.")
@click.option("--expires", metavar="DAYS", help="How long the token is valid, as in 90d. Default: until it is revoked.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="New file to write the token to (mode 0600)."
)
@_store
@_json
def create(
    name: str, scope: str, team: str, expires: str | None, output: Path | None, url: str | None, as_json: bool
) -> None:
    """Create a token.

    On a terminal, the token is shown once. Otherwise it is written to a file that only you can read.
    """
    import time

    from zeus.service.auth import new
    from zeus.store import open_store
    from zeus.store.address import default_path
    from zeus.store.api import utc
    from zeus.store.tokens import Scope

    kept, secret = new(name, Scope(scope), utc(time.time()), team=team, lasts=_days(expires))
    tokens = open_store(url).tokens  # open the store first, so that a failure leaves no secret behind
    if output is None and not sys.stdout.isatty():
        output = default_path().parent / f"token-{kept.id}"  # a secret on stdout could end up in a log
        output.parent.mkdir(parents=True, exist_ok=True)
    if output is None:
        tokens.add(kept)
    else:
        with _new_file(output) as file:
            tokens.add(kept)  # before the secret is written: no file holds one that the store does not know
            print(secret, file=file)
    if as_json:
        where = {"token": secret} if output is None else {"file": str(output)}
        print_json({"id": kept.id, "name": name, "scope": scope, "team": team, "expires_at": kept.expires_at, **where})
    elif output is not None:
        click.echo(f"{kept.id}  {scope}  {name}  in {output}")
    else:
        click.echo(f"{secret}\nThis token is not shown again. Set it as ZEUS_TOKEN, or enter it on the page.")


@token.command("list")
@_store
@_json
def list_tokens(url: str | None, as_json: bool) -> None:
    """List all tokens, without their secrets."""
    import time

    from zeus.store import open_store
    from zeus.store.api import utc

    tokens, now = open_store(url).tokens.all(), utc(time.time())
    names = ("id", "name", "team", "scope", "created_at", "expires_at", "used_at", "revoked_at")
    if as_json:
        print_json([{name: getattr(one, name) for name in names} for one in tokens])
        return
    if not tokens:
        click.echo("There are no tokens. Create one with `zeus token create NAME`.")
        return
    headings = ["id", "name", "team", "scope", "state", "created", "expires", "last used"]
    rows = [
        [
            *(one.id, one.name, one.team or "-", one.scope.value, one.state(now), _minute(one.created_at)),
            *("never" if at is None else _minute(at) for at in (one.expires_at, one.used_at)),
        ]
        for one in tokens
    ]
    print_table(headings, rows)
    click.echo("(times in UTC)")


@token.command()
@click.argument("token_id")
@_store
@_json
def revoke(token_id: str, url: str | None, as_json: bool) -> None:
    """Revoke a token.

    The service refuses it from now on. `zeus token list` shows the ids.
    """
    import time

    from zeus.store import open_store
    from zeus.store.api import utc

    gone = open_store(url).tokens.revoke(token_id, utc(time.time()))
    if as_json:
        print_json({"id": gone.id, "name": gone.name, "revoked_at": gone.revoked_at})
    else:
        click.echo(f"{gone.id}  {gone.name}  revoked {gone.revoked_at}")


def _days(text: str | None) -> timedelta | None:
    """How long a token is valid.

    >>> _days("90d"), _days(None)
    (datetime.timedelta(days=90), None)
    """
    if text is None:
        return None
    number = text.removesuffix("d")
    if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= MOST_DAYS):
        raise InputError(f"--expires {text}: give days from 1d to {MOST_DAYS}d, such as 90d.")
    return timedelta(days=int(number))


def _minute(at: str) -> str:
    """A stored time, to the minute.

    >>> _minute("2026-11-16T03:40:04.666845+00:00")
    '2026-11-16 03:40'
    """
    return at[:16].replace("T", " ")


@contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """A new file that only this user can read. It is removed if the block raises.

    Raises:
        InputError: The file cannot be created.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as wrong:
        raise InputError(f"cannot create {path}: {wrong.strerror}. Give another file with --output.") from wrong
    try:
        with os.fdopen(descriptor, "w") as file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise
