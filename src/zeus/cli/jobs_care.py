"""`zeus jobs pause|resume|audit`: hold Zeus back from a job, and see who changed it."""

from __future__ import annotations

import json
from typing import Any

import click

from zeus.cli.output import print_json, print_table
from zeus.cli.stores import at_store, existing_jobs

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@click.argument("job")
@at_store
@_json
def pause(job: str, url: str | None, as_json: bool) -> None:
    """Run a job as before Zeus, until it is resumed.

    Its trials take the default batch size and have no bound, and no power limit is set. They are measured. A trial that
    runs now goes on as it is.
    """
    existing_jobs(url).pause(job)
    print_json({"job": job, "paused": True}) if as_json else click.echo(f"{job}: paused; it runs as before Zeus")


@click.command()
@click.argument("job")
@at_store
@_json
def resume(job: str, url: str | None, as_json: bool) -> None:
    """Let Zeus tune a paused job again."""
    existing_jobs(url).pause(job, paused=False)
    print_json({"job": job, "paused": False}) if as_json else click.echo(f"{job}: resumed")


@click.command()
@click.argument("job")
@click.option("--last", type=click.IntRange(min=1, max=1000), default=50, show_default=True, help="Entries to show.")
@at_store
@_json
def audit(job: str, last: int, url: str | None, as_json: bool) -> None:
    """Show who changed a job, when, from where, and how.

    The newest change comes first. The audit of a job that was removed is still there.
    """
    found = existing_jobs(url).audit(job, most=last)
    if as_json:
        print_json(found)
        return
    rows = [
        [_moment(one["at"]), one["who"], one["from"], one["action"], details(one["details"])]
        for one in found["entries"]
    ]
    if not rows:
        click.echo(f"Nobody has changed a job {job!r} in this store.")
        return
    print_table(["when (UTC)", "who", "from", "what", "details"], rows)
    if len(rows) < found["total"]:
        click.echo(f"(the last {len(rows)} of {found['total']})")


def _moment(at: str) -> str:
    return at[:19].replace("T", " ")


def details(told: dict[str, Any]) -> str:
    """What a change was, on one line.

    >>> details({"eta_knob": {"old": 0.5, "new": 0.7}, "trials": 3})
    'eta_knob: 0.5 -> 0.7, trials: 3'
    """
    return ", ".join(f"{name}: {_change(value)}" for name, value in told.items() if value != "")


def _change(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"old", "new"}:
        return f"{_shown(value['old'])} -> {_shown(value['new'])}"
    return _shown(value)


def _shown(value: Any) -> str:
    return (value or "nobody") if isinstance(value, str) else json.dumps(value)
