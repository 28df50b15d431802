"""Who may speak to a service over this store: tokens, kept as hashes beside the facts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
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


class MemoryTokens:
    """Tokens of a store in memory."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._lock = threading.Lock()

    def add(self, token: Token) -> None:
        """Keep it."""
        with self._lock:
            self._tokens[token.id] = token

    def find(self, token_id: str) -> Token | None:
        """By id."""
        return self._tokens.get(token_id)

    def all(self) -> list[Token]:
        """The oldest first."""
        with self._lock:
            return list(self._tokens.values())

    def revoke(self, token_id: str, at: str) -> Token:
        """Refuse it from now on."""
        with self._lock:
            if token_id not in self._tokens:
                raise no_token(token_id)
            known = self._tokens[token_id]
            self._tokens[token_id] = replace(known, revoked_at=known.revoked_at or at)
            return self._tokens[token_id]


def no_token(token_id: str) -> NotKnown:
    """Nobody made it."""
    return NotKnown(f"token {token_id!r} is not known here; see `zeus token list`.")
