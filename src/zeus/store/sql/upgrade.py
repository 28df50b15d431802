"""Creates and upgrades the tables of a database."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from zeus.errors import InputError, StoreError
from zeus.store.address import instead, named
from zeus.store.wait_limit import allowed

HEAD = "0001"  # the newest file of migrations/versions
MIGRATIONS = Path(__file__).parent / "migrations"
ADVISORY_LOCK = 0x5A455553  # "ZEUS"
TABLE = "zeus_version"  # alembic's default may be used by other programs in the same database
LOCK_SECONDS, NAP_SECONDS = 60.0, 0.02  # an upgrade takes seconds
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENFILE, errno.EMFILE, errno.ESTALE}  # temporary errors
MADE = b"A store was made beside this file.\n"


def make_file(path: Path) -> None:
    """Create an empty file for a store if there is none. Only its owner may read and write it.

    Raises:
        InputError: The file is empty, but a store was kept in it. SQLite would start a new store in its place.
        StoreError: The disk is full or failing.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        wal = path.with_name(f"{path.name}-wal")
        was_store = _size(_lock_of(path)) > 0 or _size(wal) > 0
        is_empty = path.stat().st_size == 0  # checked last: another process may be creating the store now
    except OSError as wrong:
        kind = StoreError if wrong.errno in PASSING else InputError
        raise kind(f"{path} cannot be opened: {wrong.strerror}. Check {named(f'sqlite:///{path}')}.") from wrong
    if is_empty and was_store:
        raise InputError(
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


def bring_up_to_date(engine: Engine) -> None:
    """Create missing tables and upgrade old ones: one process at a time, all or nothing."""
    with engine.connect() as connection:
        if _version(connection) == HEAD:
            return
    with _alone(engine) as connection:
        _migrate(connection, HEAD)


def _version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(TABLE):
        return None
    found: str | None = connection.scalar(sa.text(f"SELECT version_num FROM {TABLE}"))
    return found


_one = threading.Lock()  # alembic's operations share global state


@contextmanager
def _alone(engine: Engine) -> Iterator[Connection]:
    with _one:
        if engine.dialect.name != "sqlite":
            with engine.begin() as connection:
                connection.exec_driver_sql("BEGIN")  # the driver does not begin transactions by itself
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
                yield connection
            return
        with _locked(Path(str(engine.url.database))) as lock:
            with engine.begin() as connection:
                mode = connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()  # stays with the file
                if mode != "wal":
                    raise InputError(
                        f"SQLite cannot keep a write-ahead log for {engine.url.database} (journal mode {mode!r}): the "
                        "file system lacks shared memory. "
                        + instead(f"sqlite:///{engine.url.database}", "a file on a local disk")
                    )
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                yield connection
            with suppress(OSError):  # the disk may be full, but the upgrade is done
                os.pwrite(lock, MADE, 0)


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
        kind = StoreError if wrong.errno in PASSING else InputError
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
                time.sleep(NAP_SECONDS)
            except OSError as wrong:
                advice = instead(f"sqlite:///{path}", "a file on a local disk")
                raise InputError(f"{beside} cannot be locked: {wrong.strerror}. {advice}") from wrong
        yield lock
    finally:
        os.close(lock)


def _migrate(connection: Connection, head: str) -> None:
    # Imported late: usually there is nothing to migrate, and the import of alembic takes longer than an ask.
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    script = ScriptDirectory(str(MIGRATIONS))
    steps = list(script.walk_revisions("base", head))[::-1]
    found = _version(connection)
    known = [step.revision for step in steps]
    if found is not None and found not in known:
        raise InputError(
            f"the store is of version {found}; this Zeus knows versions up to {HEAD}. It was written by a newer one. "
            "Install the newer Zeus, or use another store."
        )
    context = MigrationContext.configure(connection, opts={"version_table": TABLE})
    with Operations.context(context):
        if found is not None:
            context.stamp(script, found)
        for step in steps[known.index(found) + 1 if found else 0 :]:
            step.module.upgrade()
            context.stamp(script, step.revision)
