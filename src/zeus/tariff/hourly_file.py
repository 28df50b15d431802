"""Hourly values in a file.

    CSV     a heading `hour,value`, then a line for each hour: 2026-11-15T17:00Z,312.5
    JSON    one object: {"2026-11-15T17:00Z": 312.5, "2026-11-15T18:00Z": null}

Hours are in UTC. A value that is left empty (CSV) or null (JSON) is unknown, and so is an hour that is not in the file.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import math
from pathlib import Path
from typing import Any

from zeus.errors import InputError
from zeus.tariff.rates import HourlyRate, hour_of

HEADING = ["hour", "value"]


def read_hourly(path: Path, what: str, least: float = -math.inf) -> HourlyRate:
    """The hourly values of a file. A file that has not changed is not read again.

    Args:
        path: A CSV or JSON file.
        what: What the file was given for, for messages.
        least: The lowest value allowed.

    Raises:
        InputError: The file cannot be read, or a line of it is wrong.
    """
    try:
        stamp = path.stat()
        return _read(path.absolute(), what, least, (stamp.st_mtime_ns, stamp.st_size))
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "it is not UTF-8 text"
        raise InputError(
            f"{what}={str(path)!r}: give a number, or a CSV or JSON file of hourly values. The file cannot be read: "
            f"{reason}."
        ) from failed


@functools.lru_cache(maxsize=16)
def _read(path: Path, what: str, least: float, stamp: tuple[int, int]) -> HourlyRate:
    text = path.read_text(encoding="utf-8-sig")
    cells = _json_cells(path, text) if path.suffix.lower() == ".json" else _csv_cells(path, text)
    values: dict[int, float] = {}
    seen: set[int] = set()
    for line, key, cell in cells:
        where = f"{path}, line {line}"
        try:
            hour = hour_of(key)
        except InputError as wrong:
            raise InputError(f"{where}: {wrong}") from None
        if hour in seen:
            raise InputError(f"{where}: the hour {key!r} is there twice. Remove one of the lines.")
        seen.add(hour)
        value = _value(where, cell, least)
        if value is not None:
            values[hour] = value
    return HourlyRate(values)


def _value(where: str, cell: Any, least: float) -> float | None:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    try:
        value = math.nan if isinstance(cell, bool | list | dict) else float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < least:
        bound = "" if least == -math.inf else f" of at least {least:g}"
        raise InputError(f"{where}: {cell!r} is no value. Give a number{bound}, or leave it empty if it is unknown.")
    return value


def _csv_cells(path: Path, text: str) -> list[tuple[int, str, str]]:
    reader = csv.reader(io.StringIO(text))
    cells = []
    try:
        heading = [name.strip().lower() for name in next(reader, [])]
        if heading != HEADING:
            raise InputError(f"{path}, line 1: the heading is {','.join(heading)!r}. Write `hour,value`.")
        for row in reader:
            if not row:
                continue
            if len(row) != len(HEADING):
                raise InputError(f"{path}, line {reader.line_num}: {len(row)} cells. Give an hour and a value.")
            cells.append((reader.line_num, row[0], row[1]))
    except csv.Error as wrong:
        raise InputError(f"{path}, line {reader.line_num}: {wrong}.") from wrong
    return cells


def _json_cells(path: Path, text: str) -> list[tuple[int, str, Any]]:
    try:
        found = json.loads(text, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"{path} is not JSON: {wrong}.") from wrong
    if not isinstance(found, _Pairs):
        raise InputError(f'{path}: expected one object such as {{"2026-11-15T17:00Z": 312.5}}.')
    cells, at = [], 0
    for key, value in found:
        place = text.find(json.dumps(key), at)
        at = place + 1 if place >= 0 else at
        cells.append((text.count("\n", 0, max(at, 0)) + 1, key, value))
    return cells


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object, in order and with repeated keys."""
