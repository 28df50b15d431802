"""Reads CSV tables strictly. A malformed line raises `InputError` with the file, the line and the fault.

A file whose name ends in .xz is decompressed while it is read.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import IO

from zeus.errors import InputError

_WHOLE = re.compile(r"[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def read_lines(path: Path, *, quoted: bool = False) -> Iterator[tuple[int, list[str]]]:
    """The cells of each line, with its number. Quotes have no meaning unless it is `quoted`.

    A quoted file may also be in Latin-1.
    """
    import lzma

    line = 0
    try:
        with _open(path) as file:
            text = _text(file, latin=quoted)
            reader = csv.reader(text) if quoted else csv.reader(text, quoting=csv.QUOTE_NONE, strict=True)
            for cells in reader:
                line = reader.line_num
                yield line, cells
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (lzma.LZMAError, EOFError) as error:
        raise InputError(f"{path}, after line {line}: not a whole file in the format of xz ({error}).") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}, line {line + 1}: not a valid CSV in UTF-8 ({error}).") from error


class Header(Enum):
    """What the first line of a table is."""

    NEEDED = "the columns, in this order"
    OPTIONAL = "the columns, or the first row"
    AMONG = "the columns, among others and in any order"


class Cells(dict[str, str]):
    """The cells of one line by column, with a check for each type of column."""

    def __init__(self, path: Path, line: int, cells: Iterable[tuple[str, str]]) -> None:
        super().__init__(cells)
        self.path, self.line = path, line

    def fault(self, what: str) -> InputError:
        """The error that says what is wrong with this line."""
        return _fault(self.path, self.line, what)

    def text(self, column: str) -> str:
        if not self[column] or self[column] != self[column].strip():
            raise self.fault(f"{column} is {self[column]!r}; give a name without spaces around it")
        return self[column]

    def whole(self, column: str, otherwise: str = "") -> int:
        if not _WHOLE.fullmatch(self[column]) or int(self[column]) == 0:
            raise self.fault(f"{column} is {self[column]!r}; give a whole number of at least 1{otherwise}")
        return int(self[column])

    def number(self, column: str) -> float:
        value = float(self[column]) if _NUMBER.fullmatch(self[column]) else math.nan
        if not math.isfinite(value):
            raise self.fault(f"{column} is {self[column]!r}; give a finite number")
        return value

    def positive(self, column: str) -> float:
        if (value := self.number(column)) <= 0:
            raise self.fault(f"{column} is {self[column]!r}; give a number above 0")
        return value

    def not_negative(self, column: str) -> float:
        if (value := self.number(column)) < 0:
            raise self.fault(f"{column} is {self[column]!r}, which is negative")
        return value


def read_table(
    path: Path | str, columns: tuple[str, ...], header: Header = Header.OPTIONAL, *, quoted: bool = False
) -> Iterator[Cells]:
    """The rows of a CSV with these columns. Blank lines are skipped, unless a header is needed."""
    path, names = Path(path), columns
    for line, cells in read_lines(path, quoted=quoted):
        if line == 1 and (header is not Header.OPTIONAL or set(cells) & set(columns)):
            _check_header(path, cells, columns, header)
            names = tuple(cells)
            continue
        if not cells and header is not Header.NEEDED:
            continue
        if len(cells) != len(names):
            raise _fault(path, line, f"{len(cells)} cells; needs {len(names)} ({', '.join(names)})")
        yield Cells(path, line, zip(names, cells, strict=True))


def _check_header(path: Path, cells: list[str], columns: tuple[str, ...], header: Header) -> None:
    wanted = f"it must be {','.join(columns)}"
    if header is Header.OPTIONAL:
        if tuple(cells) != columns:
            raise _fault(path, 1, f"the header is {','.join(cells)}; {wanted}")
    elif missing := [column for column in columns if column not in cells]:
        raise _fault(path, 1, f"the header lacks {', '.join(missing)}; {wanted}")
    elif header is Header.NEEDED and (extra := [cell for cell in cells if cell not in columns]):
        raise _fault(path, 1, f"the header has the extra column {', '.join(extra)}; {wanted}")
    elif header is Header.NEEDED and tuple(cells) != columns:
        raise _fault(path, 1, f"columns {','.join(cells)} are out of order or repeated; the header: {wanted}")


def _fault(path: Path, line: int, what: str) -> InputError:
    return InputError(f"{path}, line {line}: {what}.")


def _open(path: Path) -> IO[bytes]:
    import lzma

    return lzma.open(path) if path.suffix == ".xz" else path.open("rb")


def _text(lines: Iterable[bytes], *, latin: bool) -> Iterator[str]:
    """Decode line by line, so that an error names the right line. The first line may begin with a byte order mark."""
    for index, line in enumerate(lines):
        try:
            yield line.decode("utf-8" if index else "utf-8-sig")
        except UnicodeDecodeError:
            if not latin:
                raise
            yield line.decode("latin-1")
