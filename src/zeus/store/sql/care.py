"""Care for a database: its backup, what it holds and how large it is, and why it cannot be used, without secrets."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from zeus.errors import StoreError, StoreUnusable
from zeus.store.api import utc
from zeus.store.sql import backup
from zeus.store.sql.backup import CACHES, TABLES, Backup
from zeus.store.sql.database import Database, TransactionMode
from zeus.store.sql.migrations import HEAD

# Why a database does not answer, by the names of its driver's errors and SQLite's codes. Never the driver's own words,
# which hold addresses and users.
SQLITE = {
    sqlite3.SQLITE_BUSY: "the database is busy",
    sqlite3.SQLITE_LOCKED: "the database is busy",
    sqlite3.SQLITE_FULL: "the disk of the database is full",
    sqlite3.SQLITE_IOERR: "the disk of the database fails",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged",
    sqlite3.SQLITE_NOTADB: "the database file is damaged",
    sqlite3.SQLITE_CANTOPEN: "the database file cannot be opened",
    sqlite3.SQLITE_READONLY: "the database file cannot be written",
    sqlite3.SQLITE_PERM: "the database file cannot be opened",
}
POSTGRES = {
    "ConnectionTimeout": "the database server does not answer",
    "AdminShutdown": "the database server is shutting down",
    "CannotConnectNow": "the database server is starting",
    "TooManyConnections": "the database server has no connection left",
    "InvalidPassword": "the database server does not accept the service's password",
    "InvalidAuthorizationSpecification": "the database server does not accept the service's user",
    "InvalidCatalogName": "the database does not exist",
    "UndefinedTable": "the database holds no store any more",
    "DiskFull": "the disk of the database is full",
    "LockNotAvailable": "the database is busy",
}
# While connecting, the driver has only words.
CONNECTING = {
    "starting up": POSTGRES["CannotConnectNow"],
    "shutting down": POSTGRES["AdminShutdown"],
    "too many clients": POSTGRES["TooManyConnections"],
    "connection slots": POSTGRES["TooManyConnections"],
    "password": POSTGRES["InvalidPassword"],
    "authentication": POSTGRES["InvalidAuthorizationSpecification"],
    "role ": POSTGRES["InvalidAuthorizationSpecification"],
    "does not exist": POSTGRES["InvalidCatalogName"],
    "timeout": POSTGRES["ConnectionTimeout"],
}


class Care:
    """What an operator does with a store as a whole."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def backup(self, path: Path) -> Backup:
        """Write all of the store but its caches to a new file, as of one moment."""
        with self._database.transaction(TransactionMode.READ) as db:
            at = utc(db.now())
        return backup.write(self._database, path, at)

    def restore(self, path: Path) -> Backup:
        """Fill this store, which must be empty, with a backup: all or nothing."""
        return backup.restore(self._database, path)

    def status(self) -> dict[str, Any]:
        """What a store holds, and how large it is."""
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            version = db.row("SELECT version_num FROM zeus_version")[0]
            counts = {table.removeprefix("zeus_"): int(db.row(f"SELECT count(*) FROM {table}")[0]) for table in TABLES}
            running = int(db.row("SELECT count(*) FROM zeus_trials WHERE leased_until > ''")[0])
            last = db.row("SELECT max(changed_at) FROM zeus_trials")[0]
            if self._database.is_server:
                size = int(db.row("SELECT pg_database_size(current_database())")[0])
            else:
                pages, each = db.row("SELECT * FROM pragma_page_count, pragma_page_size")
                size = int(pages) * int(each)
            logs = int(db.row("SELECT coalesce(sum(length(log)), 0) FROM zeus_logs")[0])
            cached = {table.removeprefix("zeus_"): int(db.row(f"SELECT count(*) FROM {table}")[0]) for table in CACHES}
        return {
            "version": version,
            "kind": "postgres" if self._database.is_server else "sqlite",
            "bytes": size,
            "running": running,
            "last_change": last,
            "log_letters": logs,
            "rows": counts,
            "cached": cached,
        }

    def trouble(self) -> str | None:
        """Why the store cannot be used, in words that strangers may read; None if it can."""
        try:
            with self._database.transaction(TransactionMode.READ) as db:
                found = db.row("SELECT version_num FROM zeus_version")
                is_standby = self._database.is_server and db.row("SELECT pg_is_in_recovery()")[0]
        except (StoreError, StoreUnusable) as wrong:
            return _why(wrong)
        version = None if found is None else str(found[0])
        if version != HEAD:
            newer = version is not None and version > HEAD
            return f"the store has version {version}, and this service version {HEAD}: " + (
                "update the service" if newer else "restart the service, which upgrades it"
            )
        return "the database is a standby, which cannot be written" if is_standby else None


def _why(wrong: StoreError | StoreUnusable) -> str:
    """Why a store did not answer, without the words of the driver."""
    cause = wrong.__cause__
    if cause is None:
        return "all connections to the database are in use"
    if isinstance(cause, sqlite3.Error):
        code = int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF
        return SQLITE.get(code, "the database is busy" if "locked" in str(cause) else "the database does not answer")
    for kind in type(cause).__mro__:
        if kind.__name__ in POSTGRES:
            return POSTGRES[kind.__name__]
    told = (said for words, said in CONNECTING.items() if words in str(cause))
    return next(told, "the database server cannot be reached")
