"""Tokens and browser sessions of a service. Only their hashes are stored, beside the facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from zeus.errors import NotKnown
from zeus.store.sql.database import Database, TransactionMode
from zeus.store.sql.rows import insert

_NAMES = ("id", "name", "scope", "hash", "created_at", "revoked_at", "team", "expires_at", "used_at")
_ALL = f"SELECT {', '.join(_NAMES)} FROM zeus_tokens"
_FIND = f"{_ALL} WHERE id = :token_id"
_SESSION = ("hash", "token_id", "until")


class Scope(StrEnum):
    """What a token may do. Each scope includes those above it."""

    READ = "read"
    REPORT = "report"  # ask, tell, register: what a training script does
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Token:
    """One token, without its secret."""

    id: str
    name: str
    scope: Scope
    hash: str
    created_at: str
    revoked_at: str | None = None
    team: str = ""  # whose jobs it may change, besides its own; empty: no team
    expires_at: str | None = None  # None: never
    used_at: str | None = None  # to the minute; None: never

    @property
    def owner(self) -> str:
        """The owner of the jobs that are registered with it."""
        return f"{self.team}/{self.name}" if self.team else self.name

    def state(self, now: str) -> str:
        """Whether it is accepted, as a word for people.

        >>> Token("1", "ci", Scope.READ, "", "2026-01-01", expires_at="2026-02-01").state("2026-03-01")
        'expired'
        """
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"


@dataclass(frozen=True, slots=True)
class TokenSession:
    """A browser session, begun with a token. It ends after some time, with its token, or by a logout."""

    hash: str
    token_id: str
    until: str


class Tokens:
    """Tokens and sessions, in the same database as the facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token) -> None:
        """Store a new token."""
        row = {name: getattr(token, name) for name in _NAMES}
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run(insert("zeus_tokens", _NAMES), **{**row, "scope": token.scope.value})

    def find(self, token_id: str) -> Token | None:
        """The token of this id, revoked or not; None if there is none."""
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(_FIND, token_id=token_id)
        return None if found is None else _token(found)

    def all(self) -> list[Token]:
        """All tokens, oldest first."""
        with self._database.transaction(TransactionMode.READ) as db:
            return [_token(row) for row in db.rows(f"{_ALL} ORDER BY created_at, id")]

    def revoke(self, token_id: str, at: str) -> Token:
        """Refuse this token from now on. A revoked token keeps its time. Raises NotKnown if there is none."""
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("UPDATE zeus_tokens SET revoked_at = :at WHERE id = :of AND revoked_at IS NULL", of=token_id, at=at)
            found = db.row(_FIND, token_id=token_id)
        if found is None:
            raise NotKnown(f"token {token_id!r} is not known here. `zeus token list` shows all tokens.")
        return _token(found)

    def used(self, token_id: str, at: str) -> None:
        """Store when a token was last used."""
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("UPDATE zeus_tokens SET used_at = :at WHERE id = :of", of=token_id, at=at)

    def begin(self, session: TokenSession, now: str) -> None:
        """Store a session, and drop those that have expired."""
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("DELETE FROM zeus_sessions WHERE until <= :now", now=now)
            db.run(insert("zeus_sessions", _SESSION), **{name: getattr(session, name) for name in _SESSION})

    def session(self, hash_: str) -> TokenSession | None:
        """The session of this hash, expired or not; None if there is none."""
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(f"SELECT {', '.join(_SESSION)} FROM zeus_sessions WHERE hash = :hash", hash=hash_)
        return None if found is None else TokenSession(*found)

    def end(self, hash_: str) -> None:
        """Drop a session, if it exists."""
        with self._database.transaction(TransactionMode.WRITE) as db:
            db.run("DELETE FROM zeus_sessions WHERE hash = :hash", hash=hash_)


def _token(row: tuple[Any, ...]) -> Token:
    values = dict(zip(_NAMES, row, strict=True))
    return Token(**{**values, "scope": Scope(values["scope"])})
