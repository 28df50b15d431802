"""Creates and upgrades the tables of a database."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from zeus.errors import InputError

HEAD = "0001"  # the newest version of `migrations`


class Upgradable(Protocol):
    """What an upgrade needs to know of a kind of database."""

    has_version: str  # a statement with one row if there is a table zeus_version, and none otherwise

    def alone(self, connection: Any) -> AbstractContextManager[None]:
        """A transaction in which no other process upgrades this database."""


def bring_up_to_date(connection: Any, driver: Upgradable) -> None:
    """Create missing tables and upgrade old ones: one process at a time, all or nothing."""
    if _version(connection, driver) == HEAD:
        return
    from zeus.store.sql.migrations import MIGRATIONS  # imported late: usually there is nothing to do

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
