"""How commands print: JSON without NaN (unknown is null), and numbers and tables for people."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from zeus.tariff.text import digits

BLOCKS = "▁▂▃▄▅▆▇█"


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


def seconds(number: float | None) -> str:
    """Seconds for people.

    >>> seconds(12.34), seconds(754.2), seconds(7530.0), seconds(None)
    ('12.3 s', '754 s', '2 h 06 min', '-')
    """
    if number is None or not math.isfinite(number):
        return "-"
    if number < 3600:
        return f"{digits(number)} s"
    minutes = round(number / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def sparkline(values: Sequence[float | None], width: int = 30) -> str:
    """The newest values in a few characters, from 0 to the largest. An unknown value leaves a gap.

    >>> sparkline([8.0, 4.0, None, 1.0]), sparkline([])
    ('█▅ ▂', '')
    """
    newest = list(values)[-width:]
    top = max((value for value in newest if value is not None), default=0.0) or 1.0
    return "".join(" " if value is None else BLOCKS[round(value / top * (len(BLOCKS) - 1))] for value in newest)


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


def plain_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> list[str]:
    """The lines of a table in plain text.

    >>> plain_table(["job", "runs"], [["asr", "7"], ["sentiment", "12"]], numbers=["runs"])
    ['job        runs', 'asr           7', 'sentiment    12']
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in [headings, *rows]:
        cells = [
            text.rjust(width) if heading in numbers else text.ljust(width)
            for heading, text, width in zip(headings, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
