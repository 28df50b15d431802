"""A database, its connections and its transactions. Statements go straight to the driver.

SQLAlchemy compiles the text of each statement, once per kind of database, and keeps a pool of connections. It does not
run the statements, because that would take longer than SQLite's own work.
"""

from __future__ import annotations

import math
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.engine import Dialect, Engine
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import PoolProxiedConnection

from zeus import settings
from zeus.errors import InputError, StoreError
from zeus.lazy import optional
from zeus.store.address import named, shown
from zeus.store.sql.silent_server import hung_up_after
from zeus.store.sql.upgrade import bring_up_to_date, make_file
from zeus.store.wait_limit import allowed

# Temporary errors: the database is busy, or its disk is full or failing.
PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PROTOCOL,
}
NAP_SECONDS = 0.01  # the longest pause between two attempts; it is random, so that all waiting writers are equal
CONNECTIONS = 15  # at most, at one time; further threads wait
IDLE_SECONDS = 60.0  # how long Postgres lets an idle process hold a job; deciding takes milliseconds
WAITS = "zeus_waits"  # key for the wait in milliseconds that a connection is set to


class Conflict(StoreError):
    """Another process created the same row first. Nothing was changed."""


class TransactionMode(Enum):
    """What a transaction does."""

    READ = "read"
    SNAPSHOT = "snapshot"  # reads that must all see the same moment
    WRITE = "write"


class Statement:
    """A statement that is compiled once and run often. `values` names the columns it writes."""

    def __init__(self, core: sa.ClauseElement, values: Sequence[str] | None = None) -> None:
        self._core = core
        self._values = None if values is None else list(values)
        self._texts: dict[str, str] = {}

    def text(self, dialect: Dialect) -> str:
        """The SQL for this kind of database, with named parameters."""
        text = self._texts.get(dialect.name)
        if text is None:
            text = self._texts[dialect.name] = str(self._core.compile(dialect=dialect, column_keys=self._values))
        return text


CLOCK = Statement(sa.text("SELECT extract(epoch FROM clock_timestamp())"))


class Transaction:
    """Runs statements within one transaction."""

    def __init__(self, cursor: Any, dialect: Dialect, wall: Callable[[], float] | None = None) -> None:
        self._cursor, self._dialect, self._wall = cursor, dialect, wall

    def now(self) -> float:
        """Seconds since 1970, by a clock that all users of this database share.

        For Postgres that is the server's clock, as clients' clocks may differ by minutes. For SQLite it is the clock of
        the machine, which all its users share.
        """
        if self._wall is not None:
            return self._wall()
        return time.time() if self._dialect.name == "sqlite" else float(self.row(CLOCK, {})[0])

    def run(self, statement: Statement, values: dict[str, Any]) -> None:
        """Run a statement that returns no rows."""
        self._cursor.execute(statement.text(self._dialect), values)

    def run_each(self, statement: Statement, values: list[dict[str, Any]]) -> None:
        """Run a statement once for each of these values."""
        if values:
            self._cursor.executemany(statement.text(self._dialect), values)

    def row(self, statement: Statement, values: dict[str, Any]) -> Any:
        """The first row, or None."""
        self._cursor.execute(statement.text(self._dialect), values)
        return self._cursor.fetchone()

    def rows(self, statement: Statement, values: dict[str, Any] | None = None) -> list[Any]:
        self._cursor.execute(statement.text(self._dialect), values or {})
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
        busy_seconds = settings.time_limits().database_busy if busy_seconds is None else busy_seconds
        self._busy_seconds = busy_seconds
        self._wall = wall
        make = _sqlite if url.startswith("sqlite") else _postgres
        self._engine = make(url, busy_seconds, connections)
        # SQLite's writers wait in `_begin_in_turn` instead.
        self._writers = _sqlite(url, 0.0, connections) if url.startswith("sqlite") else self._engine
        self._dialect = self._engine.dialect
        self._pid = os.getpid()
        # If a store is never closed, its connections close when it is garbage-collected.
        weakref.finalize(self, _let_go, {self._engine, self._writers}, self._pid).atexit = False
        self._driver = driver = cast("Any", self._dialect.loaded_dbapi)
        self._errors = (driver.Error, SQLAlchemyError)
        self._not_data: type[Exception] = driver.DataError
        self._conflict: type[Exception] = driver.IntegrityError
        self.name = shown(url)
        try:
            if url.startswith("sqlite"):
                make_file(Path(cast("str", self._engine.url.database)))
            bring_up_to_date(self._engine)
        except DBAPIError as wrong:
            kind = StoreError if _is_away(wrong.orig) else InputError
            raise kind(f"the store {self.name} cannot be opened: {_message(wrong)}. Check {named(url)}.") from wrong

    @contextmanager
    def transaction(self, mode: TransactionMode) -> Iterator[Transaction]:
        """Commit all statements of the block at its end, or none if it raises."""
        if self._pid != os.getpid():  # a forked child must not use its parent's connections
            for engine in {self._engine, self._writers}:
                engine.dispose(close=False)
            self._pid = os.getpid()
        ending = False
        try:
            connection, cursor = self._begin(mode)
            try:
                yield Transaction(cursor, self._dialect, self._wall)
                ending = True
                connection.commit()
            except BaseException:
                try:
                    connection.rollback()
                except self._errors:
                    connection.invalidate()
                raise
            finally:
                connection.close()  # back to the pool
        except self._conflict as wrong:
            raise Conflict(f"the store {self.name} was changed by others: {_message(wrong)}. Try again.") from wrong
        except (self._not_data, UnicodeEncodeError) as wrong:  # the latter: half of a letter, as in broken UTF-8
            raise InputError(f"the store cannot hold this value: {_message(wrong)}.") from wrong
        except self._errors as wrong:
            unsure = ending and mode is TransactionMode.WRITE
            effect = "Whether the change was made is not known." if unsure else "Nothing was changed; try again."
            raise StoreError(f"the store {self.name} did not answer: {_message(wrong)}. {effect}") from wrong

    def close(self) -> None:
        for engine in {self._engine, self._writers}:
            engine.dispose()

    def _begin(self, mode: TransactionMode) -> tuple[PoolProxiedConnection, Any]:
        engine, again = self._writers if mode is TransactionMode.WRITE else self._engine, False
        while True:
            connection = engine.raw_connection()
            try:
                return connection, self._begin_on(connection, mode)
            except BaseException as wrong:
                away = isinstance(wrong, self._driver.Error) and self._dialect.is_disconnect(
                    wrong, connection.dbapi_connection, None
                )
                connection.invalidate()
                if again or not away:
                    raise
            engine.dispose()  # the server closed the connection before anything began: connect once more
            again = True

    def _begin_on(self, connection: PoolProxiedConnection, mode: TransactionMode) -> Any:
        cursor: Any = connection.cursor()
        seconds = allowed(self._busy_seconds)
        if mode is not TransactionMode.WRITE or self._dialect.name != "sqlite":
            self._wait_at_most(connection, cursor, seconds)
        if self._dialect.name != "sqlite":
            level = "REPEATABLE READ" if mode is TransactionMode.SNAPSHOT else "READ COMMITTED"
            cursor.execute(f"BEGIN ISOLATION LEVEL {level}")
        elif mode is TransactionMode.WRITE:
            # SQLite refuses to turn a reader into a writer while another writes, so writers say so at the start.
            _begin_in_turn(cursor, seconds)
        else:
            cursor.execute("BEGIN")
        return cursor

    def _wait_at_most(self, connection: PoolProxiedConnection, cursor: Any, seconds: float) -> None:
        """Limit the wait for locks of others. The database is told only if the limit has changed."""
        milliseconds = max(1, int(seconds * 1000))
        if connection.info.get(WAITS) != milliseconds:
            is_sqlite = self._dialect.name == "sqlite"
            cursor.execute(f"{'PRAGMA busy_timeout' if is_sqlite else 'SET lock_timeout'} = {milliseconds}")
            connection.info[WAITS] = milliseconds


def _let_go(engines: set[Engine], pid: int) -> None:
    for engine in engines:
        engine.dispose(close=os.getpid() == pid)  # a forked child must not close its parent's connections


def _sqlite(url: str, busy_seconds: float, connections: int) -> Engine:
    engine = sa.create_engine(url, paramstyle="named", pool_size=connections, max_overflow=0)

    def set_up(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        record.info[WAITS] = int(allowed(busy_seconds) * 1000)
        for pragma in (f"busy_timeout={record.info[WAITS]}", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    sa.event.listen(engine, "connect", set_up)
    return engine


def _begin_in_turn(cursor: Any, busy_seconds: float) -> None:
    """Wait for other writers, then begin. SQLite itself waits in ever longer pauses, so newcomers would overtake."""
    deadline = None
    while True:
        try:
            cursor.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as wrong:
            now = time.monotonic()
            deadline = deadline or now + busy_seconds
            if not _is_busy(wrong) or now >= deadline:
                raise
            time.sleep(random.uniform(0.0, NAP_SECONDS))


def _postgres(address: str, busy_seconds: float, connections: int) -> Engine:
    try:
        url, milliseconds = sa.make_url(address), max(1, int(busy_seconds * 1000))
    except (ArgumentError, ValueError):  # their messages would show the password
        raise InputError(f"{shown(address)} is not the address of a database. Check {named(address)}.") from None
    patience = {"keepalives_idle": 30, "tcp_user_timeout": milliseconds}
    patience = {name: value for name, value in patience.items() if name not in url.query}
    with optional("Postgres", "postgres"):
        engine = sa.create_engine(url, connect_args=patience, pool_size=connections, max_overflow=0)

    def set_up(connection: Any, record: Any) -> None:
        connection.autocommit = True  # as for SQLite
        record.info[WAITS] = max(1, int(allowed(busy_seconds) * 1000))
        connection.execute(f"SET lock_timeout = {record.info[WAITS]}")
        # In case a machine loses its power or its network while it holds a job.
        connection.execute(f"SET idle_in_transaction_session_timeout = {int(IDLE_SECONDS * 1000)}")

    limits = settings.time_limits()
    drivers: Any = cast("Any", engine.dialect.loaded_dbapi).Connection

    class Connection(drivers):  # type: ignore[misc]
        def wait(self, *arguments: Any, **options: Any) -> Any:  # the driver waits for all answers here
            with hung_up_after(allowed(busy_seconds) + limits.database_silent, self.pgconn.socket):
                return super().wait(*arguments, **options)

    def connect(_dialect: object, _record: object, arguments: list[Any], options: dict[str, Any]) -> Any:
        if "connect_timeout" not in url.query:
            seconds = allowed(limits.database_connect)
            options["connect_timeout"] = max(2, math.ceil(seconds))  # the driver's minimum is 2
        return Connection.connect(*arguments, **options)

    sa.event.listen(engine, "do_connect", connect)
    sa.event.listen(engine, "connect", set_up)
    return engine


def _is_away(wrong: BaseException | None) -> bool:
    """Whether a database that cannot be opened may work later, because it is down or busy."""
    if isinstance(wrong, sqlite3.Error):
        return getattr(wrong, "sqlite_errorcode", 0) & 0xFF in PASSING
    return any(one.__name__ == "OperationalError" for one in type(wrong).__mro__)


def _is_busy(wrong: sqlite3.Error) -> bool:
    return getattr(wrong, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY  # no code if Python raised the error


def _message(wrong: BaseException) -> str:
    """The message of the database, on one line."""
    cause = wrong.orig if isinstance(wrong, DBAPIError) else wrong
    return " ".join(str(cause).split()).rstrip(".")
