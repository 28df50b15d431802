"""Who may speak to a service over this store: tokens and their sessions, kept as hashes beside the facts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from zeus.errors import NotKnown


class Scope(StrEnum):
    """What a token may do; each may also do what those above it may."""

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


@dataclass(frozen=True, slots=True)
class TokenSession:
    """A browser that somebody logged in with a token. It ends with its time, its token or a logout."""

    hash: str
    token_id: str
    until: str


class Tokens(Protocol):
    """Where they are kept."""

    def add(self, token: Token) -> None:
        """Keep a new one."""

    def find(self, token_id: str) -> Token | None:
        """The one of this id, revoked or not."""

    def all(self) -> list[Token]:
        """The oldest first."""

    def revoke(self, token_id: str, at: str) -> Token:
        """From now on it is refused; one that was revoked before stays as it is."""

    def begin(self, session: TokenSession, now: str) -> None:
        """Keep a session. Those whose time is over by now are dropped."""

    def session(self, hash_: str) -> TokenSession | None:
        """The one of this hash, over or not."""

    def end(self, hash_: str) -> None:
        """Drop it, if it is there."""


def no_token(token_id: str) -> NotKnown:
    """Nobody made it."""
    return NotKnown(f"token {token_id!r} is not known here; see `zeus token list`.")
