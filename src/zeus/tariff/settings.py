"""Rates as users write them: a number, a file of hourly values, or for carbon the URL of an online source.

    CSV     a heading `hour,value`, then a line for each hour: 2026-11-15T17:00Z,312.5
    JSON    one object: {"2026-11-15T17:00Z": 312.5, "2026-11-15T18:00Z": null}

Hours are in UTC. A value that is left empty (CSV) or null (JSON) is unknown, and so is an hour that is not in the file.
"""

from __future__ import annotations

import csv
import functools
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zeus import settings
from zeus.errors import InputError
from zeus.tariff.online import online_rate
from zeus.tariff.rates import HourlyRate, Prices, Rate, hour_of

HEADING = ["hour", "value"]


def prices(environ: Mapping[str, str] = settings.HERE) -> Prices:
    """ZEUS_PRICE_PER_KWH, ZEUS_CURRENCY and ZEUS_GCO2E_PER_KWH.

    Raises:
        InputError: A rate is neither a number nor a file of hourly values.
    """
    price, carbon = settings.price_per_kwh(environ), settings.gco2e_per_kwh(environ)
    return Prices(
        read_rate(price, settings.price_per_kwh.variable) if price else None,
        settings.currency(environ),
        read_rate(carbon, settings.gco2e_per_kwh.variable, carbon=True, token=settings.gco2e_token(environ))
        if carbon
        else None,
    )


def read_rate(text: str, what: str, *, carbon: bool = False, token: str = "") -> Rate:
    """A rate as a user writes it: a number, a CSV or JSON file of hourly values, or for carbon the URL of a source.

    Raises:
        InputError: It is none of these, or the file is wrong.

    >>> read_rate("0.3", "ZEUS_PRICE_PER_KWH")
    0.3
    """
    is_url = text.startswith(("http://", "https://"))
    if is_url and carbon:
        return online_rate(text, token)
    least = 0.0 if carbon else -math.inf  # electricity is sometimes sold for less than nothing
    wanted = f"{what}={text!r}: give a number{_bound(least)}, or a CSV or JSON file of hourly values."
    if (number := _number(text, least)) is not None:
        return number
    if _number(text, -math.inf) is not None or is_url:
        raise InputError(wanted)
    try:
        stamp = Path(text).stat()
        return _read(Path(text).absolute(), least, (stamp.st_mtime_ns, stamp.st_size))
    except (OSError, UnicodeDecodeError) as failed:
        reason = failed.strerror if isinstance(failed, OSError) else "it is not UTF-8 text"
        raise InputError(f"{wanted} The file cannot be read: {reason}.") from failed


@functools.lru_cache(maxsize=16)
def _read(path: Path, least: float, stamp: tuple[int, int]) -> HourlyRate:
    """The hourly values of a file. A file that has not changed is not read again."""
    text = path.read_text(encoding="utf-8-sig")
    values: dict[int, float | None] = {}
    for where, key, cell in _json_cells(path, text) if path.suffix.lower() == ".json" else _csv_cells(path, text):
        try:
            hour = hour_of(key)
        except InputError as wrong:
            raise InputError(f"{where}: {wrong}") from None
        if hour in values:
            raise InputError(f"{where}: the hour {key!r} is there twice. Remove one of them.")
        is_empty = cell is None or (isinstance(cell, str) and not cell.strip())
        values[hour] = None if is_empty else _number(cell, least)
        if values[hour] is None and not is_empty:
            raise InputError(
                f"{where}: {cell!r} is no value. Give a number{_bound(least)}, or leave it empty if it is unknown."
            )
    return HourlyRate({hour: value for hour, value in values.items() if value is not None})


def _number(cell: Any, least: float) -> float | None:
    """This finite number of at least `least`; None if it is none."""
    try:
        value = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= least else None


def _bound(least: float) -> str:
    return "" if least == -math.inf else f" of at least {least:g}"


def _csv_cells(path: Path, text: str) -> Iterator[tuple[str, str, Any]]:
    reader = csv.reader(text.splitlines())
    try:
        heading = [name.strip().lower() for name in next(reader, [])]
        if heading != HEADING:
            raise InputError(f"{path}, line 1: the heading is {','.join(heading)!r}. Write `hour,value`.")
        for row in filter(None, reader):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(HEADING):
                raise InputError(f"{where}: {len(row)} cells. Give an hour and a value.")
            yield where, row[0], row[1]
    except csv.Error as wrong:
        raise InputError(f"{path}, line {reader.line_num}: {wrong}.") from wrong


def _json_cells(path: Path, text: str) -> Iterator[tuple[str, str, Any]]:
    try:
        found = json.loads(text, object_pairs_hook=tuple)  # keeps a key that is there twice
    except (ValueError, RecursionError) as wrong:
        raise InputError(f"{path} is not JSON: {wrong}.") from wrong
    if not isinstance(found, tuple):
        raise InputError(f'{path}: expected one object such as {{"2026-11-15T17:00Z": 312.5}}.')
    for key, value in found:
        yield f"{path}, {key!r}", key, value
