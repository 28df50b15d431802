"""Statements straight to the database's driver, inside a transaction that SQLAlchemy holds.

SQLAlchemy writes each statement's text, once for each kind of database, and looks after connections and transactions.
To run one through it as well would cost more than SQLite takes to do the work.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect


class Statement:
    """A statement that is built once and run often; `values` names the columns it writes."""

    def __init__(self, core: sa.ClauseElement, values: tuple[str, ...] | None = None) -> None:
        self._core = core
        self._values = None if values is None else list(values)
        self._texts: dict[str, str] = {}

    def text(self, dialect: Dialect) -> str:
        """As this kind of database takes it, with named parameters."""
        known = self._texts.get(dialect.name)
        if known is None:
            known = self._texts[dialect.name] = str(self._core.compile(dialect=dialect, column_keys=self._values))
        return known


class Transaction:
    """One transaction: `run` for what is run often, `connection` for all else. It is its caller's to end."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._dialect = connection.dialect
        self._cursor: Any = connection.connection.cursor()

    def run(self, statement: Statement, values: dict[str, Any]) -> None:
        """What gives no rows."""
        self._cursor.execute(statement.text(self._dialect), values)

    def row(self, statement: Statement, values: dict[str, Any]) -> Any:
        """The one row, or None."""
        self._cursor.execute(statement.text(self._dialect), values)
        return self._cursor.fetchone()

    def rows(self, statement: Statement, values: dict[str, Any]) -> list[Any]:
        """All rows."""
        self._cursor.execute(statement.text(self._dialect), values)
        found: list[Any] = self._cursor.fetchall()
        return found
