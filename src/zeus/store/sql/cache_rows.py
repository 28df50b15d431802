"""Rows of the caches beside the facts: digests of jobs, and snapshots of policy states."""

from __future__ import annotations

from collections.abc import Sequence

from zeus.store.api import Digest, LogPoint, Snapshot
from zeus.store.sql.database import Transaction
from zeus.store.sql.rows import insert, named


def digests_of(db: Transaction, names: Sequence[str]) -> dict[str, Digest]:
    select = "SELECT job_id, stamp, digest FROM zeus_digests WHERE job_id"
    return {name: Digest(stamp, text) for name, stamp, text in named(db, select, names)}


def put_digests(db: Transaction, digests: dict[str, Digest]) -> None:
    """In the order of names, so that two writers on Postgres never wait for each other."""
    rows = [{"job_id": name, "stamp": one.stamp, "digest": one.text} for name, one in sorted(digests.items())]
    put = "ON CONFLICT (job_id) DO UPDATE SET stamp = excluded.stamp, digest = excluded.digest"
    db.run_each(f"{insert('zeus_digests', ('job_id', 'stamp', 'digest'))} {put}", rows)


def snapshot_of(db: Transaction, job_id: str) -> Snapshot | None:
    find = "SELECT stamp, sequence, mark, state FROM zeus_snapshots WHERE job_id = :job_id"
    found = db.row(find, job_id=job_id)
    return None if found is None else Snapshot(found[0], LogPoint(found[1], found[2]), found[3])


def put_snapshot(db: Transaction, job_id: str, one: Snapshot) -> None:
    columns = ("stamp", "sequence", "mark", "state")
    put = f"ON CONFLICT (job_id) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in columns)}"
    values = {"stamp": one.stamp, "sequence": one.point.sequence, "mark": one.point.mark, "state": one.state}
    db.run(f"{insert('zeus_snapshots', ('job_id', *columns))} {put}", job_id=job_id, **values)
