"""A database: its connections and its transactions. Statements are SQL text, and go straight to the driver.

    Database ──▶ Transaction ──▶ dialect: sqlite.py (one machine), postgres.py (many)

A statement names its parameters (`:job_id`). Both databases understand all of them. `FOR UPDATE` means nothing to
SQLite, whose writers hold the whole database, and is left out there.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from typing import Any, Protocol

from zeus import settings
from zeus.errors import InputError, StoreError, StoreUnusable
from zeus.fork import renew_after_fork
from zeus.store.address import named, shown
from zeus.store.wait_limit import allowed

CONNECTIONS = 15  # at most, at one time; further threads wait
_inherited: list[Any] = []  # of a parent process: a forked child neither uses nor closes them


class Conflict(StoreError):
    """Another process created the same row first. Nothing was changed."""


class TransactionMode(Enum):
    """What a transaction does."""

    READ = "read"
    SNAPSHOT = "snapshot"  # reads that must all see the same moment
    WRITE = "write"


class Dialect(Protocol):
    """One kind of database."""

    most: int | None  # connections, if not as many as the caller allows
    conflict: type[Exception]  # kinds of `error`
    not_data: type[Exception]

    @property
    def error(self) -> type[Exception] | tuple[type[Exception], ...]:
        """What the driver raises."""

    def open(self) -> Any:
        """The first connection, to a database that has the newest tables."""

    def connect(self) -> Any:
        """A new connection."""

    def close(self, connection: Any) -> None:
        """Close a connection of which nothing is expected any more."""

    def turn(self, mode: TransactionMode, seconds: float) -> AbstractContextManager[None]:
        """Keep other threads of this process from a transaction like this. Waits at most so long for them."""

    def begin(self, connection: Any, mode: TransactionMode, seconds: float) -> Any:
        """Begin a transaction that waits at most so long for locks, and return its cursor."""

    def is_cut(self, connection: Any) -> bool:
        """Whether the server has closed this connection."""

    def is_passing(self, wrong: BaseException) -> bool:
        """Whether a database that could not be opened may work later, because it is down or busy."""

    def is_damage(self, wrong: BaseException) -> bool:
        """Whether the database itself is damaged, so that to wait or to try again is in vain."""

    def text(self, sql: str) -> str:
        """A statement as this database reads it."""

    def now(self, cursor: Any) -> float:
        """Seconds since 1970, by a clock that all users of the database share."""


class Transaction:
    """Runs statements within one transaction."""

    def __init__(self, cursor: Any, dialect: Dialect, wall: Callable[[], float] | None = None) -> None:
        self._cursor, self._dialect, self._wall = cursor, dialect, wall

    def now(self) -> float:
        """Seconds since 1970, by a clock that all users of this database share."""
        return self._dialect.now(self._cursor) if self._wall is None else self._wall()

    def run(self, sql: str, /, **values: Any) -> None:
        """Run a statement that returns no rows."""
        self._cursor.execute(self._dialect.text(sql), values)

    def run_each(self, sql: str, rows: list[dict[str, Any]]) -> None:
        """Run a statement once for each of these rows of values."""
        if rows:
            self._cursor.executemany(self._dialect.text(sql), rows)

    def row(self, sql: str, /, **values: Any) -> Any:
        """The first row, or None."""
        self._cursor.execute(self._dialect.text(sql), values)
        return self._cursor.fetchone()

    def columns(self, sql: str) -> list[str]:
        """The names of the columns of what a statement selects."""
        self._cursor.execute(self._dialect.text(sql), {})
        return [str(one[0]) for one in self._cursor.description]

    def rows(self, sql: str, /, **values: Any) -> list[Any]:
        self._cursor.execute(self._dialect.text(sql), values)
        found: list[Any] = self._cursor.fetchall()
        return found


class Database:
    """One database, upgraded to the newest version. No call waits for ever, even if a process or machine hangs.

    Raises:
        InputError: The database cannot be opened with this address.
        StoreError: The database does not answer or is busy.
    """

    def __init__(
        self,
        url: str,
        busy_seconds: float | None = None,
        connections: int = CONNECTIONS,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._busy_seconds = settings.time_limits().database_busy if busy_seconds is None else busy_seconds
        self._wall = wall
        self.name = shown(url)
        self._dialect = dialect = _dialect(url, self._busy_seconds)
        self.is_server = not url.startswith("sqlite")
        self._most = connections if dialect.most is None else dialect.most
        self._places = threading.BoundedSemaphore(self._most)
        self._free: list[Any] = []
        # If a store is never closed, its connections close when it is garbage-collected.
        weakref.finalize(self, _close_all, dialect, self._free).atexit = False
        renew_after_fork(self)
        try:
            self._free.append(dialect.open())
        except dialect.error as wrong:
            kind = StoreError if dialect.is_passing(wrong) else InputError
            raise kind(f"the store {self.name} cannot be opened: {_message(wrong)}. Check {named(url)}.") from wrong

    def after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone, and replace what its threads may hold."""
        self._places = threading.BoundedSemaphore(self._most)
        if self._dialect.most is None:
            _inherited.extend(self._free)
            self._free.clear()

    @contextmanager
    def transaction(self, mode: TransactionMode) -> Iterator[Transaction]:
        """Commit all statements of the block at its end, or none if it raises."""
        writes, ending = mode is TransactionMode.WRITE, False
        dialect, seconds = self._dialect, allowed(self._busy_seconds)
        try:
            with self._place(seconds), dialect.turn(mode, seconds):
                connection, cursor = self._begin(mode, seconds)
                try:
                    yield Transaction(cursor, dialect, self._wall)
                    ending = True
                    connection.commit()
                except BaseException:
                    try:
                        connection.rollback()
                    except dialect.error:
                        dialect.close(connection)
                    else:
                        self._free.append(connection)
                    raise
                self._free.append(connection)
        except dialect.conflict as wrong:
            raise Conflict(f"the store {self.name} was changed by others: {_message(wrong)}. Try again.") from wrong
        except (dialect.not_data, UnicodeEncodeError) as wrong:  # the latter: half of a letter, as in broken UTF-8
            raise InputError(f"the store cannot hold this value: {_message(wrong)}.") from wrong
        except dialect.error as wrong:
            if dialect.is_damage(wrong):
                raise StoreUnusable(
                    f"the store {self.name} is damaged: {_message(wrong)}. Restore a backup."
                ) from wrong
            unsure = ending and writes
            effect = "Whether the change was made is not known." if unsure else "Nothing was changed; try again."
            raise StoreError(f"the store {self.name} did not answer: {_message(wrong)}. {effect}") from wrong

    def close(self) -> None:
        _close_all(self._dialect, self._free)

    @contextmanager
    def _place(self, seconds: float) -> Iterator[None]:
        """One of the connections that this process may have."""
        places = self._places
        if not places.acquire(timeout=seconds):
            raise StoreError(f"the store {self.name} is busy: all {self._most} connections are in use. Try again.")
        try:
            yield
        finally:
            places.release()

    def _begin(self, mode: TransactionMode, seconds: float) -> tuple[Any, Any]:
        again = False
        while True:
            try:
                connection = self._free.pop()
            except IndexError:
                connection = self._dialect.connect()
            try:
                return connection, self._dialect.begin(connection, mode, seconds)
            except BaseException as wrong:
                cut = isinstance(wrong, self._dialect.error) and self._dialect.is_cut(connection)
                self._dialect.close(connection)
                if again or not cut:
                    raise
            self.close()  # the server closed the connection before anything began: connect once more
            again = True


def _dialect(url: str, busy_seconds: float) -> Dialect:
    if url.startswith("sqlite"):
        from zeus.store.sql.sqlite import Sqlite

        return Sqlite(url, busy_seconds)
    from zeus.store.sql.postgres import Postgres

    return Postgres(url, busy_seconds)


def _close_all(dialect: Dialect, connections: list[Any]) -> None:
    while connections:
        dialect.close(connections.pop())


def _message(wrong: BaseException) -> str:
    """The message of the database, on one line."""
    return " ".join(str(wrong).split()).rstrip(".")
