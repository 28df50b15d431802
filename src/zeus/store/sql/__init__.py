"""The store in a database: SQLite for one machine, Postgres for many."""

from zeus.store.sql.store import SqlStore

__all__ = ["SqlStore"]
