"""Reads CSV tables strictly. A malformed line raises `InputError` with the file, the line and the fault.

A file whose name ends in .xz is decompressed while it is read.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from zeus.errors import InputError


def read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line, with its number. Quotes have no meaning, so each record is one line."""
    import lzma

    line = 0
    try:
        with _open(path) as file:
            for line, cells in enumerate(csv.reader(_text(file), quoting=csv.QUOTE_NONE, strict=True), start=1):
                yield line, cells
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path}, after line {line}: not a whole file in the format of xz ({error}).") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: not a valid CSV in UTF-8 ({error}).") from error


def read_table(path: Path | str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV with exactly these columns, with line numbers. A header line is checked and skipped."""
    path = Path(path)
    for line, cells in read_lines(path):
        if not cells:  # a blank line, as at the end of some files
            continue
        if len(cells) != len(columns):
            raise InputError(f"{path}, line {line}: {len(cells)} cells; needs {len(columns)} ({', '.join(columns)}).")
        if line > 1 or not set(cells) & set(columns):
            yield line, cells
        elif tuple(cells) != columns:
            raise InputError(f"{path}, line 1: the header is {','.join(cells)}; it must be {','.join(columns)}.")


def number(path: Path, line: int, column: str, text: str) -> float:
    """The number in a cell. Raises InputError if it is not a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {line}: {column} is {text!r}; give a finite number.")
    return value


def _open(path: Path) -> IO[bytes]:
    import lzma

    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    """Decode line by line, so that an error names the right line. The first line may begin with a byte order mark."""
    for index, line in enumerate(lines):
        yield line.decode("utf-8" if index else "utf-8-sig")
