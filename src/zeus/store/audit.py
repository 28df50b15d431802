"""The audit: who changed or removed which job, when and from where, and whether an actor may change it.

Entries are only ever added: no statement here changes or deletes one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from zeus.job import JobSpec
from zeus.job.wire import plain
from zeus.store.actor import current
from zeus.store.api import Job, utc
from zeus.store.sql import rows
from zeus.store.sql.database import Database, Transaction, TransactionMode
from zeus.store.sql.rows import JobRow, insert

PAGE = 100
_NAMES = ("job_id", "number", "at", "who", "place", "action", "details")
_SELECT = "SELECT at, who, place, action, job_id, details FROM zeus_audit"


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


class Audit:
    """The audit of a store. It outlives the jobs that it is about."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, job_id: str | None = None, *, after: int = 0, most: int = PAGE) -> Entries:
        """The entries of a job or of all jobs, removed ones too: newest first, without the first `after`."""
        only, order, named = "", "at DESC, job_id, number DESC", dict[str, Any]()
        if job_id is not None:
            only, order, named = "WHERE job_id = :job_id", "number DESC", {"job_id": job_id}
        with self._database.transaction(TransactionMode.READ) as db:
            total = int(db.row(f"SELECT count(*) FROM zeus_audit {only}", **named)[0])
            page = {"most": min(most, total), "after": min(after, total)}
            found = db.rows(f"{_SELECT} {only} ORDER BY {order} LIMIT :most OFFSET :after", **named, **page)
        entries = [AuditEntry(at, who, there, done, job, json.loads(text)) for at, who, there, done, job, text in found]
        return Entries(total, entries)


def note(db: Transaction, job_id: str, action: Action, details: dict[str, Any] | None = None) -> None:
    """Add an entry about a job, in the transaction that changes it. The job must be locked, or new."""
    last = db.row("SELECT max(number) FROM zeus_audit WHERE job_id = :job_id", job_id=job_id)[0]
    actor = current()
    db.run(
        insert("zeus_audit", _NAMES),
        job_id=job_id,
        number=(last or 0) + 1,
        at=utc(db.now()),
        who=actor.owner or actor.name,
        place=actor.place,
        action=action.value,
        details=json.dumps(details or {}),
    )


def take(db: Transaction, job_id: str, *, removes: bool = False) -> JobRow:
    """The row of a job that is going to change, locked. Forbidden if it is not the actor's to change."""
    row = rows.take_job(db, job_id)
    current().need(row.id, row.owner, removes=removes)
    return row


def revised(db: Transaction, row: JobRow, job: Job, *, void: bool) -> Job:
    """Store a revision and say in the audit what it changed."""
    known = rows.to_job(row)
    now = rows.revise_job(db, row, job, void=void)
    if now != known:
        note(db, job.id, Action.CHANGED, _differences(known, now))
    return now


def _differences(before: Job, after: Job) -> dict[str, Any]:
    """What a revision changed: each field with its old and its new value."""
    names = [one for one in JobSpec.__struct_fields__ if getattr(before.spec, one) != getattr(after.spec, one)]
    found = {name: {"old": getattr(before.spec, name), "new": getattr(after.spec, name)} for name in names}
    if before.policy_version != after.policy_version:
        found["policy_version"] = {"old": before.policy_version, "new": after.policy_version}
    return dict(plain(found))
