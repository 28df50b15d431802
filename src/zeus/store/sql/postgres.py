"""Postgres: the store of many machines."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from typing import Any

from zeus import settings
from zeus.errors import InputError
from zeus.lazy import optional
from zeus.store.address import named, shown
from zeus.store.sql.database import TransactionMode
from zeus.store.sql.migrations import bring_up_to_date
from zeus.store.wait_limit import allowed

with optional("Postgres", "postgres"):
    import psycopg
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

ADVISORY_LOCK = 0x5A455553  # "ZEUS"
IDLE_SECONDS = 60.0  # how long the server lets an idle process hold a job; deciding takes milliseconds
LEAST_CONNECT_SECONDS = 2  # the least that the driver takes
CLOCK = "SELECT extract(epoch FROM clock_timestamp())"


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that is stopped, or whose disk hangs.

    The network notices a machine that is gone. But such a server still accepts data, so only a time limit helps.
    """

    patience: Callable[[], float] = staticmethod(lambda: math.inf)  # seconds for each answer
    lock_timeout = 0  # milliseconds, as the server was told

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        return super().wait(_at_most(gen, self.patience()), *arguments, **options)


def _at_most(answers: Generator[Any, Any, Any], seconds: float) -> Generator[Any, Any, Any]:
    """What the driver waits for. It looks ten times a second, with 0 if nothing came."""
    until = time.monotonic() + seconds
    try:
        wanted = next(answers)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() > until:
                raise psycopg.OperationalError("the server is silent")
            wanted = answers.send(ready)
    except StopIteration as done:
        return done.value


class Postgres:
    """The `Dialect` of Postgres."""

    most: int | None = None
    error: type[Exception] = psycopg.Error
    conflict: type[Exception] = psycopg.IntegrityError
    not_data: type[Exception] = psycopg.DataError
    # Not `to_regclass`: it may answer from a cache that does not know yet what others have just committed.
    has_version = "SELECT 1 FROM pg_class WHERE relname = 'zeus_version' AND pg_table_is_visible(oid)"

    def __init__(self, url: str, busy_seconds: float) -> None:
        given = settings_of(url)
        self._address = make_conninfo(**given)
        self._busy_seconds, self._limits = busy_seconds, settings.time_limits()
        self._connect_seconds = None if "connect_timeout" in given else self._limits.database_connect
        milliseconds = max(1, int(busy_seconds * 1000))
        patience = {"keepalives_idle": 30, "tcp_user_timeout": milliseconds}
        self._patience = {name: value for name, value in patience.items() if name not in given}

    def open(self) -> Any:
        connection = self.connect()
        try:
            bring_up_to_date(connection, self)
        except BaseException:
            connection.close()
            raise
        return connection

    def connect(self) -> Any:
        options: dict[str, Any] = dict(self._patience)
        if self._connect_seconds is not None:
            options["connect_timeout"] = max(LEAST_CONNECT_SECONDS, math.ceil(allowed(self._connect_seconds)))
        connection = BoundedConnection.connect(self._address, autocommit=True, **options)
        connection.patience = lambda: allowed(self._busy_seconds) + self._limits.database_silent
        _wait_at_most(connection, connection, allowed(self._busy_seconds))
        # In case a machine loses its power or its network while it holds a job.
        connection.execute(f"SET idle_in_transaction_session_timeout = {int(IDLE_SECONDS * 1000)}")
        return connection

    def close(self, connection: Any) -> None:
        with suppress(psycopg.Error):
            connection.close()

    def turn(self, mode: TransactionMode, seconds: float) -> AbstractContextManager[None]:
        return nullcontext()  # jobs do not wait for one another

    def begin(self, connection: Any, mode: TransactionMode, seconds: float) -> Any:
        cursor = connection.cursor()
        _wait_at_most(connection, cursor, seconds)
        level = "REPEATABLE READ" if mode is TransactionMode.SNAPSHOT else "READ COMMITTED"
        cursor.execute(f"BEGIN ISOLATION LEVEL {level}")
        return cursor

    def is_cut(self, connection: Any) -> bool:
        return bool(connection.closed or connection.broken)

    def is_passing(self, wrong: BaseException) -> bool:
        return isinstance(wrong, psycopg.OperationalError)

    def is_damage(self, wrong: BaseException) -> bool:
        return isinstance(wrong, psycopg.errors.DataCorrupted | psycopg.errors.IndexCorrupted)

    def text(self, sql: str) -> str:
        return _named_parameters(sql)

    def now(self, cursor: Any) -> float:
        return float(cursor.execute(CLOCK).fetchone()[0])  # clients' clocks may differ by minutes

    @contextmanager
    def alone(self, connection: Any) -> Iterator[None]:
        with connection.transaction():
            connection.execute(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")
            yield


def settings_of(url: str) -> dict[str, Any]:
    """What an address says about a database, by the names of its driver.

    Raises:
        InputError: It is no address. The driver's own message would show a password that stands at a wrong place.
    """
    try:
        found = conninfo_to_dict(url.replace("postgresql+psycopg", "postgresql", 1))
        is_sound = all(port.isdecimal() for port in str(found.get("port", 0)).split(",") if port)
    except psycopg.Error:
        is_sound = False
    if not is_sound:
        raise InputError(f"{shown(url)} is not the address of a database. Check {named(url)}.")
    return found


@lru_cache(1000)  # more than there are statements
def _named_parameters(sql: str) -> str:
    """A statement with the driver's own names for parameters.

    >>> _named_parameters("SELECT job FROM zeus_jobs WHERE id = :job_id")
    'SELECT job FROM zeus_jobs WHERE id = %(job_id)s'
    """
    return re.sub(r":(\w+)", r"%(\1)s", sql)


def _wait_at_most(connection: BoundedConnection, cursor: Any, seconds: float) -> None:
    """Limit the wait for locks of others. The server is told only if the limit has changed."""
    milliseconds = max(1, int(seconds * 1000))
    if connection.lock_timeout != milliseconds:
        cursor.execute(f"SET lock_timeout = {milliseconds}")
        connection.lock_timeout = milliseconds
