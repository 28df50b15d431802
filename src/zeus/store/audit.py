"""The audit: who changed or removed which job, when and from where. Entries are only ever added."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from zeus.job import JobSpec
from zeus.job.wire import plain
from zeus.store.api import Job

PAGE = 100


class Action(StrEnum):
    """What was done to a job."""

    REGISTERED = "registered"
    CHANGED = "changed"
    PAUSED = "paused"
    RESUMED = "resumed"
    EXCUSED = "excused"
    PARDONED = "pardoned"
    RESET = "reset"
    REMOVED = "removed"
    IMPORTED = "imported"
    OWNER = "owner"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One change of a job."""

    at: str
    who: str
    place: str  # the address of the client, or the name of the machine
    action: str
    job: str
    details: dict[str, Any]  # what it was and is

    def to_json(self) -> dict[str, Any]:
        """The entry as the service sends it."""
        return {
            "at": self.at,
            "who": self.who,
            "from": self.place,
            "action": self.action,
            "job": self.job,
            "details": self.details,
        }


class Entries(NamedTuple):
    """Some entries, newest first, and how many there are in all."""

    total: int
    entries: list[AuditEntry]


class Audit(Protocol):
    """The audit of a store. It outlives the jobs that it is about."""

    def read(self, job_id: str | None = None, *, after: int = 0, most: int = PAGE) -> Entries:
        """The entries of a job or of all jobs, removed ones too: newest first, without the first `after`."""


def differences(before: Job, after: Job) -> dict[str, Any]:
    """What a revision changed: each field with its old and its new value."""
    names = [one for one in JobSpec.__struct_fields__ if getattr(before.spec, one) != getattr(after.spec, one)]
    found = {name: {"old": getattr(before.spec, name), "new": getattr(after.spec, name)} for name in names}
    if before.policy_version != after.policy_version:
        found["policy_version"] = {"old": before.policy_version, "new": after.policy_version}
    return dict(plain(found))
