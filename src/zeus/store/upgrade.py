"""Bringing a database up to date: what is missing is made, what is old is upgraded."""

from __future__ import annotations

import fcntl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from zeus.errors import InputError

HEAD = "0005"  # the newest step under migrations/versions
MIGRATIONS = Path(__file__).parent / "migrations"
ADVISORY_LOCK = 0x5A455553  # "ZEUS"


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
    with _one:
        if engine.dialect.name != "sqlite":
            with engine.begin() as connection:
                connection.exec_driver_sql("BEGIN")  # the driver does not begin by itself, here and below
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
                yield connection
            return
        with Path(f"{engine.url.database}.lock").open("w") as lock:  # goes with its process, however that ends
            fcntl.flock(lock, fcntl.LOCK_EX)
            with engine.begin() as connection:
                mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()  # stays with the file
                if mode != "wal":
                    raise InputError(
                        f"SQLite cannot keep a write-ahead log at {engine.url.database} (it says {mode!r}): this file "
                        "system lacks shared memory. Set ZEUS_STORE to a file on a local disk."
                    )
                connection.exec_driver_sql("BEGIN IMMEDIATE")
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
