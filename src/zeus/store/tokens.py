"""Tokens and browser sessions of a service. Only their hashes are stored, beside the facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from zeus.errors import NotKnown


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


class Tokens(Protocol):
    """Where tokens and sessions are stored."""

    def add(self, token: Token) -> None:
        """Store a new token."""

    def find(self, token_id: str) -> Token | None:
        """The token of this id, revoked or not; None if there is none."""

    def all(self) -> list[Token]:
        """All tokens, oldest first."""

    def revoke(self, token_id: str, at: str) -> Token:
        """Refuse this token from now on. A revoked token keeps its time. Raises NotKnown if there is none."""

    def used(self, token_id: str, at: str) -> None:
        """Store when a token was last used."""

    def begin(self, session: TokenSession, now: str) -> None:
        """Store a session, and drop those that have expired."""

    def session(self, hash_: str) -> TokenSession | None:
        """The session of this hash, expired or not; None if there is none."""

    def end(self, hash_: str) -> None:
        """Drop a session, if it exists."""


def no_token(token_id: str) -> NotKnown:
    return NotKnown(f"token {token_id!r} is not known here. `zeus token list` shows all tokens.")
