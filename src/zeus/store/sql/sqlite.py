"""SQLite: the store of one machine, in a file, or in memory for as long as it is open."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from zeus.errors import InputError, StoreError
from zeus.fork import renew_after_fork
from zeus.store.address import IN_MEMORY, file_of, instead, named
from zeus.store.sql.database import TransactionMode
from zeus.store.sql.migrations import bring_up_to_date
from zeus.store.wait_limit import allowed

# Temporary errors: the database is busy, or its disk is full or failing.
PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
}
DISK_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENFILE, errno.EMFILE, errno.ESTALE}
# The longest pause between two attempts to write. A writer holds the file for about a millisecond. The pause is random,
# so that all who wait have the same chance.
NAP_SECONDS = 0.001
LOCK_SECONDS, LOCK_NAP_SECONDS = 60.0, 0.02  # for an upgrade, which takes seconds
MADE = b"A store was made beside this file.\n"


class Sqlite:
    """The `Dialect` of SQLite."""

    error = (sqlite3.Error, UnicodeDecodeError)  # the latter: a damaged text
    conflict: type[Exception] = sqlite3.IntegrityError
    not_data: type[Exception] = sqlite3.DataError
    has_version = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'zeus_version'"

    def __init__(self, url: str, busy_seconds: float) -> None:
        self._path = None if url == IN_MEMORY else file_of(url)
        self._busy_seconds = busy_seconds
        self.most = 1 if self._path is None else None  # each connection to memory is a database of its own
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._writers = threading.Lock()

    def open(self) -> Any:
        if self._path is not None:
            make_file(self._path)
        connection = self.connect()
        bring_up_to_date(connection, self)
        return connection

    def connect(self) -> Any:
        path = ":memory:" if self._path is None else self._path
        connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
        try:
            _wait_at_most(connection, allowed(self._busy_seconds))
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA foreign_keys=ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self, connection: Any) -> None:
        with suppress(sqlite3.Error):
            connection.close()

    @contextmanager
    def turn(self, mode: TransactionMode, seconds: float) -> Iterator[None]:
        if mode is not TransactionMode.WRITE:
            yield
            return
        writers = self._writers
        if not writers.acquire(timeout=seconds):
            raise sqlite3.OperationalError("database is locked")
        try:
            yield
        finally:
            writers.release()

    def begin(self, connection: Any, mode: TransactionMode, seconds: float) -> Any:
        cursor = connection.cursor()
        if mode is TransactionMode.WRITE:
            _begin_to_write(cursor, seconds)
        else:
            _wait_at_most(cursor, seconds)
            cursor.execute("BEGIN")
        return cursor

    def is_cut(self, connection: Any) -> bool:
        return False

    def is_passing(self, wrong: BaseException) -> bool:
        return _code(wrong) in PASSING

    def is_damage(self, wrong: BaseException) -> bool:
        return isinstance(wrong, UnicodeDecodeError) or _code(wrong) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

    def text(self, sql: str) -> str:
        return sql.removesuffix(" FOR UPDATE")

    def now(self, cursor: Any) -> float:
        return time.time()  # of the machine, which all its users share

    @contextmanager
    def alone(self, connection: Any) -> Iterator[None]:
        with _locked(self._path) if self._path is not None else nullcontext() as lock:
            if self._path is not None:
                (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()  # stays with the file
                if mode != "wal":
                    raise InputError(
                        f"SQLite cannot keep a write-ahead log for {self._path} (journal mode {mode!r}): the file "
                        f"system lacks shared memory. {instead(f'sqlite:///{self._path}', 'a file on a local disk')}"
                    )
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
            if lock is not None:
                with suppress(OSError):  # the disk may be full, but the upgrade is done
                    os.pwrite(lock, MADE, 0)


def _wait_at_most(cursor: Any, seconds: float) -> None:
    """Limit the wait of the next statements for locks of others."""
    cursor.execute(f"PRAGMA busy_timeout={int(seconds * 1000)}")


def _begin_to_write(cursor: Any, seconds: float) -> None:
    """Begin a transaction that may write, as soon as no other process writes.

    SQLite refuses to turn a reader into a writer while another writes, so writers say so at the start. Its own way to
    wait sleeps longer and longer, and newcomers overtake.
    """
    _wait_at_most(cursor, 0.0)
    deadline = None
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as wrong:
            now = time.monotonic()
            deadline = deadline or now + seconds
            if _code(wrong) != sqlite3.SQLITE_BUSY or now >= deadline:
                raise
            time.sleep(random.uniform(0.0, NAP_SECONDS))


def _code(wrong: BaseException) -> int:
    return int(getattr(wrong, "sqlite_errorcode", 0)) & 0xFF  # no code if Python raised the error


# ---------------------------------------------------------------------- its file, and the lock beside it


def make_file(path: Path) -> None:
    """Create an empty file for a store if there is none. Only its owner may read and write it.

    Raises:
        InputError: The file is empty, but a store was kept in it. SQLite would start a new store in its place.
        StoreError: The disk is full or failing.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        lost = emptied(path)
    except OSError as wrong:
        kind = StoreError if wrong.errno in DISK_PASSING else InputError
        raise kind(f"{path} cannot be opened: {wrong.strerror}. Check {named(f'sqlite:///{path}')}.") from wrong
    if lost is not None:
        raise InputError(lost)


def emptied(path: Path) -> str | None:
    """What to do about a file that is empty, although a store was kept in it; None if it is not such a file."""
    was_store = _size(_lock_of(path)) > 0 or _size(path.with_name(f"{path.name}-wal")) > 0
    if path.stat().st_size or not was_store:  # the size comes last: another process may be creating the store now
        return None
    return (
        f"{path} is empty (0 bytes), but a store was kept in it. Put a backup in its place. To start again without "
        f"its data, remove it together with {path.name}-wal and {path.name}.lock."
    )


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size if not path.is_symlink() else 0
    except FileNotFoundError:
        return 0


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Hold a lock file beside a file. Anyone who may use the file may lock it. The lock ends with its process.

    Raises:
        InputError: The lock file is a symbolic link, which could lead to a file of somebody else, or cannot be locked.
        StoreError: Another process holds the lock for too long.
    """
    beside = _lock_of(path)
    mode = path.stat().st_mode & 0o666
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        lock = os.open(beside, flags, mode)
    except OSError as wrong:
        if wrong.errno == errno.ELOOP:
            raise InputError(f"{beside} is a symbolic link, which is not allowed for a lock. Remove it.") from wrong
        kind = StoreError if wrong.errno in DISK_PASSING else InputError
        raise kind(f"{beside} cannot be opened: {wrong.strerror}. Check {named(f'sqlite:///{path}')}.") from wrong
    try:
        deadline = time.monotonic() + allowed(LOCK_SECONDS)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreError(
                        f"{path} is being upgraded by another process, which holds {beside}. Try again later."
                    ) from None
                time.sleep(LOCK_NAP_SECONDS)
            except OSError as wrong:
                advice = instead(f"sqlite:///{path}", "a file on a local disk")
                raise InputError(f"{beside} cannot be locked: {wrong.strerror}. {advice}") from wrong
        yield lock
    finally:
        os.close(lock)
