"""CSV tables read strictly: a fault raises `InputError` with the file, the line and what is wrong there."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

from zeus.errors import InputError


def read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line, with its number. Names and numbers need no quotes, so one record is always one line."""
    line = 0
    try:
        with path.open("rb") as file:
            for line, cells in enumerate(csv.reader(_text(file), quoting=csv.QUOTE_NONE, strict=True), start=1):
                yield line, cells
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: not a CSV text in UTF-8 ({error}).") from error


def read_table(path: Path | str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV with these columns, with line numbers; a header line is checked and passed over."""
    path = Path(path)
    for line, cells in read_lines(path):
        if not cells:  # a blank line, as at the end of some files
            continue
        if len(cells) != len(columns):
            raise InputError(
                f"{path}, line {line}: {len(cells)} cells where {len(columns)} are needed ({', '.join(columns)})."
            )
        if line > 1 or not set(cells) & set(columns):
            yield line, cells
        elif tuple(cells) != columns:
            raise InputError(f"{path}, line 1: the header {','.join(cells)} must be {','.join(columns)}.")


def number(path: Path, line: int, column: str, text: str) -> float:
    """A cell that holds a number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {line}: {column} is {text!r}; a finite number is needed.")
    return value


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    """Each decoded by itself, so that a fault is on the line that is said; some programs begin files with a mark."""
    for index, line in enumerate(lines):
        yield line.decode("utf-8" if index else "utf-8-sig")
