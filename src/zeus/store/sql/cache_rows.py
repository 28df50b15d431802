"""Rows beside the facts: digests, snapshots and the keys of asks. Also reads the open trials of many jobs at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from zeus.errors import InputError
from zeus.job import Trial, TrialRecord
from zeus.store.api import Digest, LogPoint, Snapshot
from zeus.store.sql.database import Transaction
from zeus.store.sql.rows import EACH_TRIAL, JobRow, find_trial, insert, named, to_record


def digests_of(
    db: Transaction, names: Sequence[str] | None, *, briefs: bool, hours: bool, weeks: bool
) -> dict[str, Digest]:
    wanted = {"brief": briefs, "hours": hours, "weeks": weeks}
    columns = ["job_id", "stamp", "totals", *(name if is_read else "''" for name, is_read in wanted.items())]
    found = named(db, f"SELECT {', '.join(columns)} FROM zeus_digests", "job_id", names)
    return {name: Digest(*texts) for name, *texts in found}


def put_digests(db: Transaction, digests: dict[str, Digest]) -> None:
    """In the order of names, so that two writers on Postgres never wait for each other."""
    rows = [{"job_id": name, **one._asdict()} for name, one in sorted(digests.items())]
    db.run_each(_put("zeus_digests", Digest._fields), rows)


def invalidate_digest(db: Transaction, job_id: str) -> None:
    """Let the digest be computed again although the pulse of its job stays."""
    db.run("UPDATE zeus_digests SET stamp = stamp || '*' WHERE job_id = :job_id", job_id=job_id)


def running_of(db: Transaction, names: Sequence[str] | None) -> dict[str, list[TrialRecord]]:
    """The open trials of these jobs, or of all jobs, by number."""
    found: dict[str, list[TrialRecord]] = {}
    for row in named(db, f"{EACH_TRIAL} WHERE leased_until > ''", "job_id", names):
        with suppress(InputError):  # another version of Zeus wrote it; the other jobs must still be listed
            found.setdefault(row[0], []).append(to_record(row))
    return {name: sorted(some, key=lambda record: record.trial.number) for name, some in found.items()}


def snapshot_of(db: Transaction, job_id: str) -> Snapshot | None:
    find = "SELECT stamp, sequence, mark, state FROM zeus_snapshots WHERE job_id = :job_id"
    found = db.row(find, job_id=job_id)
    return None if found is None else Snapshot(found[0], LogPoint(found[1], found[2]), found[3])


def put_snapshot(db: Transaction, job_id: str, one: Snapshot) -> None:
    values = {"stamp": one.stamp, "sequence": one.point.sequence, "mark": one.point.mark, "state": one.state}
    db.run(_put("zeus_snapshots", list(values)), job_id=job_id, **values)


def _put(table: str, columns: Sequence[str]) -> str:
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns)
    return f"{insert(table, ('job_id', *columns))} ON CONFLICT (job_id) DO UPDATE SET {changes}"


def asked_before(db: Transaction, job: JobRow, key: str | None) -> Trial | None:
    """The trial that an ask with this key has opened, or None."""
    if key is None:
        return None
    found = db.row("SELECT number FROM zeus_asks WHERE job_id = :job_id AND key = :key", job_id=job.id, key=key)
    return None if found is None else find_trial(db, job, found[0]).trial


def keep_ask(db: Transaction, job_id: str, key: str, number: int) -> None:
    """Remember the key of an ask, in case the ask is repeated."""
    db.run(insert("zeus_asks", ("job_id", "key", "number")), job_id=job_id, key=key, number=number)
