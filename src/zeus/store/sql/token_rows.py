"""Tokens and sessions in a database."""

from __future__ import annotations

import sqlalchemy as sa

from zeus.store.sql.database import Database, Statement, TransactionMode
from zeus.store.sql.tables import SESSIONS, TOKENS
from zeus.store.tokens import Scope, Token, TokenSession, no_token

_NAMES = ("id", "name", "scope", "hash", "created_at", "revoked_at")
_ALL = sa.select(*(TOKENS.c[name] for name in _NAMES))
_THIS = TOKENS.c.id == sa.bindparam("of", type_=sa.Text)
ALL = Statement(_ALL.order_by(TOKENS.c.created_at, TOKENS.c.id))
FIND = Statement(_ALL.where(_THIS))
ADD = Statement(sa.insert(TOKENS), _NAMES)
REVOKE = Statement(sa.update(TOKENS).where(_THIS, TOKENS.c.revoked_at.is_(None)), ("revoked_at",))
_SESSION = ("hash", "token_id", "until")
_OF = SESSIONS.c.hash == sa.bindparam("of", type_=sa.Text)
BEGIN = Statement(sa.insert(SESSIONS), _SESSION)
FIND_SESSION = Statement(sa.select(*(SESSIONS.c[name] for name in _SESSION)).where(_OF))
END = Statement(sa.delete(SESSIONS).where(_OF))
END_OLD = Statement(sa.delete(SESSIONS).where(SESSIONS.c.until <= sa.bindparam("now", type_=sa.Text)))


class SqlTokens:
    """`Tokens` in the same database as the facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token) -> None:
        row = {name: getattr(token, name) for name in _NAMES}
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(ADD, {**row, "scope": token.scope.value})

    def find(self, token_id: str) -> Token | None:
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(FIND, {"of": token_id})
        return None if found is None else _token(found)

    def all(self) -> list[Token]:
        with self._database.transaction(TransactionMode.READ) as db:
            return [_token(row) for row in db.rows(ALL)]

    def revoke(self, token_id: str, at: str) -> Token:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(REVOKE, {"of": token_id, "revoked_at": at})
            found = db.row(FIND, {"of": token_id})
        if found is None:
            raise no_token(token_id)
        return _token(found)

    def begin(self, session: TokenSession, now: str) -> None:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(END_OLD, {"now": now})
            db.run(BEGIN, {name: getattr(session, name) for name in _SESSION})

    def session(self, hash_: str) -> TokenSession | None:
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(FIND_SESSION, {"of": hash_})
        return None if found is None else TokenSession(*found)

    def end(self, hash_: str) -> None:
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(END, {"of": hash_})


def _token(row: tuple[str, str, str, str, str, str | None]) -> Token:
    return Token(row[0], row[1], Scope(row[2]), row[3], row[4], row[5])
