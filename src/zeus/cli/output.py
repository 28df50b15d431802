"""How commands print: JSON without NaN (unknown is null), tables, warnings and progress bars."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import click

from zeus.cli.format import plain_table


def known(number: float | None) -> float | None:
    """The number, or None if it is NaN or infinite."""
    return None if number is None or not math.isfinite(number) else number


def print_json(value: Any) -> None:
    """Print JSON, and nothing else, to stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def printed(report: Callable[[], None]) -> bool:
    """Print a report to stdout, and return whether that worked. If not, say so in one line on stderr.

    A reader that has gone away (a closed pipe) raises BrokenPipeError, which ends every command alike.
    """
    try:
        report()
        return True
    except BrokenPipeError:
        raise
    except OSError as failed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would write the rest at exit
        click.echo(f"zeus: the report could not be printed: {failed.strerror}", err=True)
        return False


@contextmanager
def warnings(silent: bool = False) -> Iterator[None]:
    """Print Zeus's warnings to stderr during the `with` block, because the user of a command sees no log."""
    handler = _Echo(logging.WARNING)
    log = logging.getLogger("zeus")
    if not silent:
        log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # stderr is closed; the command must go on
            click.echo(f"zeus: {record.getMessage()}", err=True)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = ()) -> None:
    """Print a table: drawn on a terminal, plain columns to a file or pipe. Columns in `numbers` align right."""
    if not sys.stdout.isatty():
        click.echo("\n".join(plain_table(headings, rows, numbers)))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for row in rows:
        table.add_row(*(text.replace("[", r"\[") for text in row))
    Console().print(table)


@contextmanager
def progress() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """Progress bars on stderr, if that is a terminal. Begin one with its name and total; call it with what is done."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        yield lambda what, total: partial(bars.advance, bars.add_task(what, total=total))
