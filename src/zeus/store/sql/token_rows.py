"""Tokens and sessions in a database."""

from __future__ import annotations

from typing import Any

from zeus.store.sql.database import Database, TransactionMode
from zeus.store.sql.rows import insert
from zeus.store.tokens import Scope, Token, TokenSession, no_token

_NAMES = ("id", "name", "scope", "hash", "created_at", "revoked_at", "team", "expires_at", "used_at")
_ALL = f"SELECT {', '.join(_NAMES)} FROM zeus_tokens"
_FIND = f"{_ALL} WHERE id = :token_id"
_SESSION = ("hash", "token_id", "until")


class SqlTokens:
    """`Tokens` in the same database as the facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token) -> None:
        row = {name: getattr(token, name) for name in _NAMES}
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(insert("zeus_tokens", _NAMES), **{**row, "scope": token.scope.value})

    def find(self, token_id: str) -> Token | None:
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(_FIND, token_id=token_id)
        return None if found is None else _token(found)

    def all(self) -> list[Token]:
        with self._database.transaction(TransactionMode.READ) as db:
            return [_token(row) for row in db.rows(f"{_ALL} ORDER BY created_at, id")]

    def revoke(self, token_id: str, at: str) -> Token:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("UPDATE zeus_tokens SET revoked_at = :at WHERE id = :of AND revoked_at IS NULL", of=token_id, at=at)
            found = db.row(_FIND, token_id=token_id)
        if found is None:
            raise no_token(token_id)
        return _token(found)

    def used(self, token_id: str, at: str) -> None:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("UPDATE zeus_tokens SET used_at = :at WHERE id = :of", of=token_id, at=at)

    def begin(self, session: TokenSession, now: str) -> None:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("DELETE FROM zeus_sessions WHERE until <= :now", now=now)
            db.run(insert("zeus_sessions", _SESSION), **{name: getattr(session, name) for name in _SESSION})

    def session(self, hash_: str) -> TokenSession | None:
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(f"SELECT {', '.join(_SESSION)} FROM zeus_sessions WHERE hash = :hash", hash=hash_)
        return None if found is None else TokenSession(*found)

    def end(self, hash_: str) -> None:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("DELETE FROM zeus_sessions WHERE hash = :hash", hash=hash_)


def _token(row: tuple[Any, ...]) -> Token:
    values = dict(zip(_NAMES, row, strict=True))
    return Token(**{**values, "scope": Scope(values["scope"])})
