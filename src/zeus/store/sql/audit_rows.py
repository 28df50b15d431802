"""Whether an actor may change a job, and the audit of changes. No statement here changes or deletes an entry."""

from __future__ import annotations

import json
from typing import Any

from zeus.store.actor import current
from zeus.store.api import Job, utc
from zeus.store.audit import PAGE, Action, AuditEntry, Entries, differences
from zeus.store.sql import rows
from zeus.store.sql.database import Database, Transaction, TransactionMode
from zeus.store.sql.rows import JobRow, insert

_NAMES = ("job_id", "number", "at", "who", "place", "action", "details")
_SELECT = "SELECT at, who, place, action, job_id, details FROM zeus_audit"


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
        note(db, job.id, Action.CHANGED, differences(known, now))
    return now


class SqlAudit:
    """`Audit` in the same database as the facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, job_id: str | None = None, *, after: int = 0, most: int = PAGE) -> Entries:
        only, order, named = "", "at DESC, job_id, number DESC", dict[str, Any]()
        if job_id is not None:
            only, order, named = "WHERE job_id = :job_id", "number DESC", {"job_id": job_id}
        with self._database.transaction(TransactionMode.READ) as db:
            total = int(db.row(f"SELECT count(*) FROM zeus_audit {only}", **named)[0])
            page = {"most": min(most, total), "after": min(after, total)}
            found = db.rows(f"{_SELECT} {only} ORDER BY {order} LIMIT :most OFFSET :after", **named, **page)
        entries = [AuditEntry(at, who, there, done, job, json.loads(text)) for at, who, there, done, job, text in found]
        return Entries(total, entries)
