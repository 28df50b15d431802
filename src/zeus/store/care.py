"""What an operator does with a store: back it up, restore it, and see how it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple, Protocol


class Backup(NamedTuple):
    """What a backup holds."""

    at: str
    schema: str
    rows: dict[str, int]  # by table


class Care(Protocol):
    """What can be done with a store as a whole."""

    def backup(self, path: Path) -> Backup:
        """Write all of the store but its caches to a new file, as of one moment."""

    def restore(self, path: Path) -> Backup:
        """Fill this store, which must be empty, with a backup: all or nothing."""

    def status(self) -> dict[str, Any]:
        """What the store holds, and how large it is."""

    def trouble(self) -> str | None:
        """Why the store cannot be used now, in words that strangers may read; None if it can."""
