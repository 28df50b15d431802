"""Who changes a store: what permissions are checked against, and what the audit names.

    with acting(Actor("alice", "10.0.0.7", owner="vision/alice", team="vision", may_all=False)):
        store.revise(...)        refused unless the job is hers, her team's, or nobody's

Whoever opens a store directly, without a service, may change everything in it and acts as the user of the process.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from zeus.errors import Forbidden

TEAM = "/"  # between the team and the name in an owner


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who changes a store."""

    name: str
    place: str = ""  # the address of the client, or the name of this machine
    owner: str = ""  # of the jobs that this actor registers; empty: nobody
    team: str = ""
    may_all: bool = True  # change every job, and say whose it is
    may_report: bool = True  # change any job at all

    def owns(self, owner: str) -> bool:
        """Whether a job of this owner is the actor's own, or that of the actor's team.

        >>> alice = Actor("alice", owner="vision/alice", team="vision", may_all=False)
        >>> alice.owns("vision/alice"), alice.owns("vision/bob"), alice.owns("bob"), alice.owns("")
        (True, True, False, False)
        """
        is_mine = bool(owner) and owner == self.owner
        return self.may_all or is_mine or bool(self.team and owner.startswith(self.team + TEAM))

    def may_change(self, owner: str) -> bool:
        """Whether the actor may run and revise a job of this owner."""
        return not owner or self.owns(owner)

    def rights(self, owner: str) -> dict[str, bool]:
        """What the actor may do with a job of this owner."""
        may_change, may_remove = self.may_change(owner), self.owns(owner)
        return {"may_change": self.may_report and may_change, "may_remove": self.may_report and may_remove}

    def need(self, job_id: str, owner: str, *, removes: bool = False) -> None:
        """Raise Forbidden unless the actor may change this job, or with `removes` may remove what it has learnt."""
        if self.owns(owner) if removes else self.may_change(owner):
            return
        whose = f"belongs to {owner}" if owner else "belongs to nobody"
        ask = f"Ask {owner} or an administrator" if owner else "Ask an administrator"
        raise Forbidden(f"job {job_id!r} {whose}, and {self.name} may not change it. {ask}, or use another job name.")


_now: ContextVar[Actor | None] = ContextVar("zeus_actor", default=None)


@contextmanager
def acting(actor: Actor) -> Iterator[None]:
    """All changes of stores inside this block, in this thread and the tasks that it starts, are this actor's."""
    before = _now.set(actor)
    try:
        yield
    finally:
        _now.reset(before)


def current() -> Actor:
    """Who acts here: by default the user of this process."""
    return _now.get() or Actor(user(), socket.gethostname())


def user() -> str:
    """The name of the user of this process, or its number if it has no name, as in some containers."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
