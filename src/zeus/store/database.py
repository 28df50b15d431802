"""The database behind `SqlStore`: its tables, its connections, and bringing it up to date."""

from __future__ import annotations

import fcntl
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from zeus.errors import InputError

HEAD = "0002"  # the newest step under migrations/versions
BUSY_SECONDS = 30.0  # how long a writer waits for the others before it gives up
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
    """An engine whose transactions begin as its option `zeus_begin` says, where the database lets it choose."""
    engine = sa.create_engine(url)
    if engine.dialect.name == "sqlite":

        def set_up(connection: Any, _record: object) -> None:
            connection.isolation_level = None  # the driver's own idea of when to begin is not ours
            for pragma in (f"busy_timeout={int(busy_seconds * 1000)}", "synchronous=NORMAL", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}")

        sa.event.listen(engine, "connect", set_up)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _begin_sqlite(connection: Connection) -> None:
    # A reader that turns writer halfway is refused at once where another one writes: who will write says so first.
    begin = connection.get_execution_options().get("zeus_begin", "BEGIN")
    driver: Any = connection.connection.driver_connection
    try:
        driver.execute(begin)
    except sqlite3.Error as wrong:
        raise sa.exc.OperationalError(begin, None, wrong) from wrong


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
