"""The tables of a store, by version: what each version adds to the one before. Creates and upgrades them.

Version 0001 is the first whose stores every later Zeus reads. No statement of a published version is changed any more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from zeus.errors import InputError

HEAD = "0001"  # the newest version

# Columns named `job`, `trial`, `event`, `profile`, `so_far`, `origin`, `totals`, `brief`, `hours` and `weeks` hold
# JSON. Times are text in ISO 8601.
MIGRATIONS = {
    "0001": (
        "CREATE TABLE IF NOT EXISTS zeus_version (version_num TEXT NOT NULL PRIMARY KEY)",
        # `sequence`, `trials` and `recurrences` are the last numbers used; `job` is the latest revision; `mark` is that
        # of the last sequence number, as in zeus_marks; `owner` is empty if the job is nobody's.
        """
        CREATE TABLE zeus_jobs (
            id TEXT NOT NULL PRIMARY KEY,
            generation TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            trials INTEGER NOT NULL,
            recurrences INTEGER NOT NULL,
            job TEXT NOT NULL,
            mark TEXT NOT NULL,
            owner TEXT NOT NULL
        )""",
        """
        CREATE TABLE zeus_revisions (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            revision INTEGER NOT NULL,
            job TEXT NOT NULL,
            PRIMARY KEY (job_id, revision)
        )""",
        # `sequence` is the number of its latest change; `leased_until` is null unless the trial is open; `origin` is
        # null where it is not known who runs it.
        """
        CREATE TABLE zeus_trials (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            number INTEGER NOT NULL,
            recurrence INTEGER NOT NULL,
            sequence INTEGER NOT NULL,
            asked_at TEXT NOT NULL,
            changed_at TEXT NOT NULL,
            leased_until TEXT,
            so_far TEXT,
            origin TEXT,
            trial TEXT NOT NULL,
            PRIMARY KEY (job_id, number)
        )""",
        "CREATE INDEX zeus_trials_by_sequence ON zeus_trials (job_id, sequence)",  # new events
        # Open trials, and lapsed leases.
        """
        CREATE INDEX zeus_trials_by_leased_until ON zeus_trials (job_id, leased_until) WHERE leased_until IS NOT NULL
        """,
        "CREATE INDEX zeus_trials_by_recurrence ON zeus_trials (job_id, recurrence)",
        """
        CREATE TABLE zeus_events (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            sequence INTEGER NOT NULL,
            event TEXT NOT NULL,
            PRIMARY KEY (job_id, sequence)
        )""",
        # A random mark for each change, so that histories that differ have different marks.
        """
        CREATE TABLE zeus_marks (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            sequence INTEGER NOT NULL,
            mark TEXT NOT NULL,
            PRIMARY KEY (job_id, sequence)
        )""",
        # The keys of asks, in case one is repeated.
        """
        CREATE TABLE zeus_asks (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            key TEXT NOT NULL,
            number INTEGER NOT NULL,
            PRIMARY KEY (job_id, key)
        )""",
        # The GPUs of clients that give them only once.
        """
        CREATE TABLE zeus_places (
            job_id TEXT NOT NULL PRIMARY KEY REFERENCES zeus_jobs (id),
            gpu_model TEXT NOT NULL,
            max_watts DOUBLE PRECISION NOT NULL,
            gpu_count INTEGER NOT NULL
        )""",
        # A cache: a row is of use only while its stamp is that of its job.
        """
        CREATE TABLE zeus_digests (
            job_id TEXT NOT NULL PRIMARY KEY,
            stamp TEXT NOT NULL,
            totals TEXT NOT NULL,
            brief TEXT NOT NULL,
            hours TEXT NOT NULL,
            weeks TEXT NOT NULL
        )""",
        # A cache, too: the state of its policy after the event of this sequence number and mark.
        """
        CREATE TABLE zeus_snapshots (
            job_id TEXT NOT NULL PRIMARY KEY,
            stamp TEXT NOT NULL,
            sequence INTEGER NOT NULL,
            mark TEXT NOT NULL,
            state BYTEA NOT NULL
        )""",
        # The last trial number of each forgotten job, so that no number is used twice.
        "CREATE TABLE zeus_numbers (job_id TEXT NOT NULL PRIMARY KEY, trials INTEGER NOT NULL)",
        """
        CREATE TABLE zeus_profiles (
            job TEXT NOT NULL,
            batch_size INTEGER NOT NULL,
            gpu_model TEXT NOT NULL,
            gpu_count INTEGER NOT NULL,
            profile TEXT NOT NULL,
            PRIMARY KEY (job, batch_size, gpu_model, gpu_count)
        )""",
        """
        CREATE TABLE zeus_tokens (
            id TEXT NOT NULL PRIMARY KEY,
            name TEXT NOT NULL,
            team TEXT NOT NULL,
            scope TEXT NOT NULL,
            hash TEXT NOT NULL,
            created_at TEXT NOT NULL,
            expires_at TEXT,
            used_at TEXT,
            revoked_at TEXT
        )""",
        """
        CREATE TABLE zeus_sessions (
            hash TEXT NOT NULL PRIMARY KEY,
            token_id TEXT NOT NULL REFERENCES zeus_tokens (id),
            until TEXT NOT NULL
        )""",
        # Entries are only ever added. They outlive their jobs, so they do not refer to them.
        """
        CREATE TABLE zeus_audit (
            job_id TEXT NOT NULL,
            number INTEGER NOT NULL,
            at TEXT NOT NULL,
            who TEXT NOT NULL,
            place TEXT NOT NULL,
            action TEXT NOT NULL,
            details TEXT NOT NULL,
            PRIMARY KEY (job_id, number)
        )""",
        "CREATE INDEX zeus_audit_by_at ON zeus_audit (at)",
        # The ends of trials' logs. No facts: old ones are removed.
        """
        CREATE TABLE zeus_logs (
            job_id TEXT NOT NULL REFERENCES zeus_jobs (id),
            number INTEGER NOT NULL,
            at TEXT NOT NULL,
            log TEXT NOT NULL,
            PRIMARY KEY (job_id, number)
        )""",
        "CREATE INDEX zeus_logs_by_at ON zeus_logs (at)",
    ),
}


class Upgradable(Protocol):
    """What an upgrade needs to know of a kind of database."""

    has_version: str  # a statement with one row if there is a table zeus_version, and none otherwise

    def alone(self, connection: Any) -> AbstractContextManager[None]:
        """A transaction in which no other process upgrades this database."""


def bring_up_to_date(connection: Any, driver: Upgradable) -> None:
    """Create missing tables and upgrade old ones: one process at a time, all or nothing."""
    if _version(connection, driver) == HEAD:
        return
    with driver.alone(connection):
        found = _version(connection, driver)  # another process may have done it meanwhile
        if found is not None and found not in MIGRATIONS:
            raise InputError(
                f"the store is of version {found}; this Zeus knows versions up to {HEAD}. It was written by a newer "
                "Zeus, or by one before 0.3, whose stores are no longer opened. Use that Zeus: its `zeus jobs export` "
                "writes what this one can import. Or use another store."
            )
        for version, statements in MIGRATIONS.items():
            if found is None or version > found:
                for statement in statements:
                    connection.execute(statement)
        connection.execute("DELETE FROM zeus_version")
        connection.execute(f"INSERT INTO zeus_version (version_num) VALUES ('{HEAD}')")


def _version(connection: Any, driver: Upgradable) -> str | None:
    if connection.execute(driver.has_version).fetchone() is None:
        return None
    found = connection.execute("SELECT version_num FROM zeus_version").fetchone()
    return None if found is None else str(found[0])
