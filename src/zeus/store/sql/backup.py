"""A backup of a whole store in one file, and its restoration into an empty store of either kind.

    zeus-backup line: format, schema, time
    table line: name and columns ──▶ row, row, row ...          for each table but the caches
    end line: rows, and the checksum of all lines before

Unlike an export, a backup also has tokens, the audit and logs, and restored jobs keep their generations. It is read at
one moment. The file holds hashes of tokens, so that only its owner may read it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from zeus.errors import AlreadyDone, InputError
from zeus.store.sql.database import Database, Transaction, TransactionMode
from zeus.store.sql.migrations import HEAD
from zeus.store.sql.rows import insert

FORMAT = 1
SOME = 1000  # rows at once
# Each table with its key, those first that others refer to. Caches are left out.
TABLES: dict[str, tuple[str, ...]] = {
    "zeus_jobs": ("id",),
    "zeus_revisions": ("job_id", "revision"),
    "zeus_trials": ("job_id", "number"),
    "zeus_events": ("job_id", "sequence"),
    "zeus_marks": ("job_id", "sequence"),
    "zeus_asks": ("job_id", "key"),
    "zeus_places": ("job_id",),
    "zeus_numbers": ("job_id",),
    "zeus_profiles": ("job", "batch_size", "gpu_model", "gpu_count"),
    "zeus_tokens": ("id",),
    "zeus_sessions": ("hash",),
    "zeus_audit": ("job_id", "number"),
    "zeus_logs": ("job_id", "number"),
}
CACHES = ("zeus_digests", "zeus_snapshots")


class Backup(NamedTuple):
    """What a backup holds."""

    at: str
    schema: str
    rows: dict[str, int]  # by table


def write(database: Database, path: Path, at: str) -> Backup:
    """Write a new file. If it fails, no file is left.

    Raises:
        InputError: The file exists or cannot be written.
    """
    rows, checksum = dict[str, int](), hashlib.sha256()
    with _new(path) as file, database.transaction(TransactionMode.SNAPSHOT) as db:

        def put(line: Any) -> None:
            text = f"{json.dumps(line, separators=(',', ':'))}\n".encode()
            checksum.update(text)
            file.write(text)

        put({"zeus_backup": FORMAT, "schema": HEAD, "at": at})
        for table, key in TABLES.items():
            columns = _columns(db, table)
            put({"table": table, "columns": columns})
            rows[table] = 0
            for row in _each(db, table, columns, key):
                put(row)
                rows[table] += 1
        file.write(f"{json.dumps({'rows': rows, 'sha256': checksum.hexdigest()})}\n".encode())
    return Backup(at, HEAD, rows)


def restore(database: Database, path: Path) -> Backup:
    """Fill an empty store, all or nothing.

    Raises:
        InputError: The file is not a backup, is damaged or cut, or is of a newer Zeus.
        AlreadyDone: The store holds jobs or tokens already.
    """
    backup = check(path)
    with database.transaction(TransactionMode.WRITE) as db:
        if held := [table for table in TABLES if db.row(f"SELECT 1 FROM {table} LIMIT 1") is not None]:
            raise AlreadyDone(
                f"the store is not empty: it has rows in {', '.join(held)}. Nothing was changed. Restore into a new "
                "store."
            )
        statement, columns, rows = "", list[str](), list[dict[str, Any]]()
        for line in _lines(path):
            if isinstance(line, list):
                rows.append(dict(zip(columns, line, strict=True)))
            if rows and (not isinstance(line, list) or len(rows) >= SOME):
                db.run_each(statement, rows)
                rows = []
            if isinstance(line, dict) and "table" in line:
                table, columns = _known(line["table"]), list(line["columns"])
                if strange := sorted({*columns} - {*_columns(db, table)}):
                    raise InputError(f"{path}: {table} has columns that this Zeus does not know: {strange}.")
                statement = insert(table, columns)
    return backup


def check(path: Path) -> Backup:
    """Read a backup to its end, and check that it is whole. Raises InputError if it is not."""
    checksum, counted, table, head, end = hashlib.sha256(), dict[str, int](), "", None, None
    for line, text in _texts(path):
        if end is not None:
            raise InputError(f"{path} is not a whole backup: there is more after its end.")
        if head is None:
            head = _head(path, line)
        elif isinstance(line, dict) and "sha256" in line:
            end = line
            continue
        elif isinstance(line, dict):
            table = _known(line.get("table"))
            counted[table] = 0
        else:
            counted[table] += 1
        checksum.update(text)
    if head is None or end is None:
        raise InputError(f"{path} is not a whole backup: its end is missing. Use another one.")
    if end["sha256"] != checksum.hexdigest() or end["rows"] != counted:
        raise InputError(f"{path} is damaged: its checksum differs. Nothing was changed. Use another backup.")
    return Backup(head["at"], head["schema"], counted)


def _head(path: Path, line: Any) -> dict[str, str]:
    if not isinstance(line, dict) or "zeus_backup" not in line:
        raise InputError(f"{path} is not a backup that `zeus store backup` has written.")
    if line["zeus_backup"] != FORMAT or line["schema"] > HEAD:
        raise InputError(
            f"{path} was written by a newer Zeus (schema {line['schema']}). Install that one to restore it."
        )
    return line


def _known(table: Any) -> str:
    if table not in TABLES:
        raise InputError(f"the backup has a table {table!r} that this Zeus does not know.")
    return str(table)


def _columns(db: Transaction, table: str) -> list[str]:
    return db.columns(f"SELECT * FROM {table} LIMIT 0")


def _each(db: Transaction, table: str, columns: list[str], key: tuple[str, ...]) -> Iterator[list[Any]]:
    """All rows of a table, in the order of its key. Only some are in memory at a time."""
    order, names = ", ".join(key), ", ".join(columns)
    at = [columns.index(name) for name in key]
    values = ", ".join(f":last{number}" for number in range(len(key)))
    after = ""
    last: dict[str, Any] = {}
    while found := db.rows(f"SELECT {names} FROM {table} {after} ORDER BY {order} LIMIT {SOME}", **last):
        yield from (list(row) for row in found)
        after = f"WHERE ({order}) > ({values})"
        last = {f"last{number}": found[-1][index] for number, index in enumerate(at)}


def _lines(path: Path) -> Iterator[Any]:
    return (line for line, _ in _texts(path))


def _texts(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Each line of a backup, read and as it is."""
    try:
        with path.open("rb") as plain, gzip.open(plain) as file:
            for text in file:
                yield json.loads(text), text
    except (OSError, EOFError) as wrong:
        why = wrong.strerror if isinstance(wrong, OSError) and wrong.strerror else "it is cut or not a backup"
        raise InputError(f"{path} cannot be read: {why}. Use another backup.") from wrong
    except (ValueError, UnicodeDecodeError) as wrong:
        raise InputError(f"{path} is damaged: {wrong}. Use another backup.") from wrong


@contextmanager
def _new(path: Path) -> Iterator[gzip.GzipFile]:
    """A new compressed file that only this user can read. It is removed if the block raises."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as wrong:
        raise InputError(f"cannot create {path}: {wrong.strerror}. Give another file.") from wrong
    try:
        with os.fdopen(descriptor, "wb") as plain:
            with gzip.GzipFile(fileobj=plain, mode="wb", compresslevel=5, mtime=0) as file:
                yield file
            plain.flush()
            os.fsync(plain.fileno())
    except BaseException as wrong:
        path.unlink(missing_ok=True)
        if isinstance(wrong, OSError):
            raise InputError(f"{path} cannot be written: {wrong.strerror}.") from wrong
        raise
