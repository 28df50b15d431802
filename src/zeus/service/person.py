"""Who makes a request, how that is known, and what this person may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from zeus.store.actor import TEAM, Actor
from zeus.store.tokens import Scope, Token

_ORDER = list(Scope)  # from the smallest scope to the largest


@dataclass(frozen=True, slots=True)
class Person:
    """Who makes a request, and how that is known."""

    name: str
    scope: Scope
    team: str = ""
    by: Literal["token", "session", "proxy", "open"] = "token"

    def may(self, scope: Scope) -> bool:
        """Whether this person's scope includes another."""
        return _ORDER.index(scope) <= _ORDER.index(self.scope)

    @property
    def owner(self) -> str:
        """The owner of the jobs that this person registers; empty on a service that is open to everybody."""
        if self.by == "open":
            return ""
        return f"{self.team}{TEAM}{self.name}" if self.team else self.name

    def actor(self, place: str) -> Actor:
        """This person at this address, as the store knows it."""
        return Actor(
            self.name, place, self.owner, self.team, may_all=self.may(Scope.ADMIN), may_report=self.may(Scope.REPORT)
        )


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why nobody is known by what a request carries."""

    why: str


ANYBODY = Person("anybody", Scope.ADMIN, by="open")  # who asks when the service needs no token


def of_token(token: Token, by: Literal["token", "session"]) -> Person:
    """The owner of a token that was checked."""
    return Person(token.name, token.scope, token.team, by)
