"""A store in memory, for tests, simulations, exports and demos. It ends with its process."""

from __future__ import annotations

from collections.abc import Callable

from zeus.store.address import IN_MEMORY
from zeus.store.sql.store import SqlStore


class MemoryStore(SqlStore):
    """A `Store` in SQLite's memory. All threads take turns on its one connection.

    >>> MemoryStore().address is None
    True
    """

    def __init__(self, wall: Callable[[], float] | None = None) -> None:
        super().__init__(IN_MEMORY, wall)

    def close(self) -> None:
        """Nothing: the facts last as long as this object."""
