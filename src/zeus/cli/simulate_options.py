"""Options that the `zeus simulate` commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from zeus.simulate.workers import Engine

Option = Callable[[Callable[..., Any]], Callable[..., Any]]

ETA = click.option(
    "--eta",
    type=click.FloatRange(0, 1),
    default=0.5,
    show_default=True,
    help="Weight of energy: 1 counts only energy, 0 only time.",
)
BETA = click.option(
    "--beta",
    type=click.FloatRange(1),
    default=2.0,
    show_default=True,
    help="Stop a trial when it costs beta times as much as the cheapest run so far.",
)
SMALLEST_BATCH_SIZE = click.option(
    "--smallest-batch-size",
    "smallest",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    help="Leave out smaller batch sizes of the traces. The paper uses sizes from 8 up.",
)
SEEDS = click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Number of replays, each with its own random seed.",
)
WORKERS = click.option(
    "--workers",
    type=click.IntRange(1),
    help="Number of processes. Default: all cores, or one if there is little to do.",
)


def _engine(ctx: click.Context, param: click.Parameter, text: str) -> Engine:
    from zeus.simulate.workers import parse

    return parse(text)


ENGINE = click.option(
    "--engine",
    default="local",
    show_default=True,
    metavar="local|ray[:ADDRESS]",
    callback=_engine,
    help="Where to run: processes on this machine, a Ray started for this, or the Ray cluster at an address.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def window(default: int) -> Option:
    help_text = "How many recent costs of each batch size count; 0 counts all."
    return click.option("--window", type=click.IntRange(0), default=default, show_default=True, help=help_text)


def policies(default: str) -> Option:
    help_text = "Policies to compare, separated by commas."
    return click.option("--policy", "policies", default=default, show_default=True, help=help_text)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(what, total=total)
        yield lambda done: progress.advance(task, done)
