"""CSV tables read strictly: a fault raises `InputError` with the file, the line and what is wrong there."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from zeus.errors import InputError


def read_table(path: Path | str, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """The lines of a CSV with these columns, with line numbers; a header line is checked and passed over."""
    path, line = Path(path), 0
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for line, cells in enumerate(csv.reader(file, quoting=csv.QUOTE_NONE, strict=True), start=1):
                if not cells:  # a blank line, as at the end of some files
                    continue
                if len(cells) != len(columns):
                    raise InputError(
                        f"{path}, line {line}: {len(cells)} cells where {len(columns)} are needed "
                        f"({', '.join(columns)})."
                    )
                if line > 1 or not set(cells) & set(columns):
                    yield line, cells
                elif tuple(cells) != columns:
                    raise InputError(f"{path}, line 1: the header {','.join(cells)} must be {','.join(columns)}.")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: not a CSV text in UTF-8 ({error}).") from error


def number(path: Path, line: int, column: str, text: str) -> float:
    """A cell that holds a number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{path}, line {line}: {column} is {text!r}; a finite number is needed.")
    return value
