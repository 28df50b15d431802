"""The database behind `SqlStore`: its tables, its connections, and bringing it up to date."""

from __future__ import annotations

import fcntl
import random
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from zeus.errors import InputError

HEAD = "0002"  # the newest step under migrations/versions
BUSY_SECONDS = 30.0  # how long a writer waits for the others before it gives up
NAP_SECONDS = 0.01  # at most, between two tries; a random share of it, so that all who wait have the same chance
IDLE_SECONDS = 60.0  # how long Postgres lets a process hold a job without a word; deciding takes milliseconds
MIGRATIONS = Path(__file__).parent / "migrations"
ADVISORY_LOCK = 0x5A455553  # "ZEUS"

metadata = sa.MetaData()
JOBS = sa.Table(
    "zeus_jobs",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("generation", sa.Text),
    sa.Column("sequence", sa.Integer),  # the last one used, as are the next two
    sa.Column("trials", sa.Integer),
    sa.Column("recurrences", sa.Integer),
    sa.Column("job", sa.Text),  # the latest revision
)
REVISIONS = sa.Table(
    "zeus_revisions",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("job", sa.Text),
)
TRIALS = sa.Table(
    "zeus_trials",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("recurrence", sa.Integer),
    sa.Column("sequence", sa.Integer),  # of its latest change
    sa.Column("asked_at", sa.Text),
    sa.Column("changed_at", sa.Text),
    sa.Column("leased_until", sa.Text),  # null: not open
    sa.Column("so_far", sa.Text),
    sa.Column("trial", sa.Text),
)
EVENTS = sa.Table(
    "zeus_events",
    metadata,
    sa.Column("job_id", sa.Text, primary_key=True),
    sa.Column("sequence", sa.Integer, primary_key=True),
    sa.Column("event", sa.Text),
)
PROFILES = sa.Table(
    "zeus_profiles",
    metadata,
    sa.Column("job", sa.Text, primary_key=True),
    sa.Column("batch_size", sa.Integer, primary_key=True),
    sa.Column("gpu_model", sa.Text, primary_key=True),
    sa.Column("gpu_count", sa.Integer, primary_key=True),
    sa.Column("profile", sa.Text),
)


def connect(url: str, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine whose transactions begin as its option `zeus_begin` says, where the database lets it choose.

    Nobody waits for ever: neither for another process, however it hangs, nor for a machine that went away.
    """
    return _sqlite(url, busy_seconds) if url.startswith("sqlite") else _postgres(sa.make_url(url), busy_seconds)


def _sqlite(url: str, busy_seconds: float) -> Engine:
    engine = sa.create_engine(url, paramstyle="named")

    def set_up(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # the driver's own idea of when to begin is not ours
        for pragma in (f"busy_timeout={int(busy_seconds * 1000)}", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        # A reader that turns writer halfway is refused at once where another one writes: who will write says so first.
        statement = connection.get_execution_options().get("zeus_begin", "BEGIN")
        driver: Any = connection.connection.driver_connection
        try:
            if statement == "BEGIN":
                driver.execute(statement)
            else:
                _begin_in_turn(driver, statement, busy_seconds)
        except sqlite3.Error as wrong:
            raise sa.exc.OperationalError(statement, None, wrong) from wrong

    sa.event.listen(engine, "connect", set_up)
    sa.event.listen(engine, "begin", begin)
    return engine


def _begin_in_turn(driver: Any, statement: str, busy_seconds: float) -> None:
    """Wait for other writers. SQLite's own waiting is ever longer naps, in which newcomers overtake without end."""
    deadline = None
    driver.execute("PRAGMA busy_timeout=0")
    try:
        while True:
            try:
                driver.execute(statement)
                return
            except sqlite3.OperationalError as wrong:
                now = time.monotonic()
                deadline = deadline or now + busy_seconds
                if not _is_busy(wrong) or now >= deadline:
                    raise
                time.sleep(random.uniform(0.0, NAP_SECONDS))
    finally:
        driver.execute(f"PRAGMA busy_timeout={int(busy_seconds * 1000)}")


def _postgres(url: sa.URL, busy_seconds: float) -> Engine:
    patience = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": int(busy_seconds * 1000)}
    # pool_pre_ping: a server that was started again is noticed before a verb begins, not by its failing.
    try:
        engine = sa.create_engine(
            url, pool_pre_ping=True, connect_args={name: of for name, of in patience.items() if name not in url.query}
        )
    except ImportError as missing:
        raise InputError(f"Postgres needs its driver ({missing}): pip install 'zeus-energy[postgres]'.") from missing

    def set_up(connection: Any, _record: object) -> None:
        # The second is for a machine that lost its power or network while it held a job: nobody waits for it.
        for limit, seconds in (("lock_timeout", busy_seconds), ("idle_in_transaction_session_timeout", IDLE_SECONDS)):
            connection.execute(f"SET {limit} = {max(1, int(seconds * 1000))}")
        connection.commit()

    sa.event.listen(engine, "connect", set_up)
    return engine


def is_away(wrong: BaseException | None) -> bool:
    """Whether a database that cannot be opened may be there again later: it is down or busy, not wrong."""
    if isinstance(wrong, sqlite3.Error):
        return _is_busy(wrong)
    return type(wrong).__name__ == "OperationalError"


def _is_busy(wrong: sqlite3.Error) -> bool:
    return getattr(wrong, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY  # not set where Python itself refuses


def bring_up_to_date(engine: Engine) -> None:
    """Create what is missing and upgrade what is old; one process at a time, and all or nothing."""
    if _version(engine) == HEAD:
        return
    with _alone(engine) as connection:
        _migrate(connection, HEAD)


def _version(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return _version_on(connection)


def _version_on(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return found


_one = threading.Lock()  # alembic's operations go by one global


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    writer = engine.execution_options(zeus_begin="BEGIN IMMEDIATE")
    with _one:
        if engine.dialect.name != "sqlite":
            with writer.begin() as connection:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
                yield connection
            return
        with Path(f"{engine.url.database}.lock").open("w") as lock:  # goes with its process, however that ends
            fcntl.flock(lock, fcntl.LOCK_EX)
            raw = engine.raw_connection()
            try:
                raw.cursor().execute("PRAGMA journal_mode=WAL")  # stays with the file; not possible in a transaction
            finally:
                raw.close()
            with writer.begin() as connection:
                yield connection


def _migrate(connection: Connection, head: str) -> None:
    # Most of the time there is nothing to migrate, and alembic takes longer to import than an ask takes.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(MIGRATIONS))
    steps = list(script.walk_revisions("base", head))[::-1]
    found = _version_on(connection)
    known = [step.revision for step in steps]
    if found is not None and found not in known:
        raise InputError(
            f"the store is of version {found}; this Zeus knows versions up to {HEAD}. It was written by a newer one: "
            "install that, or set ZEUS_STORE to another store."
        )
    context = MigrationContext.configure(connection)
    with Operations.context(context):
        for step in steps[known.index(found) + 1 if found else 0 :]:
            step.module.upgrade()
            context.stamp(script, step.revision)
