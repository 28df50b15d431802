"""The ends of trials' logs in a database."""

from __future__ import annotations

from collections.abc import Iterable

from zeus import settings
from zeus.store.actor import current
from zeus.store.api import utc
from zeus.store.sql import rows
from zeus.store.sql.database import Database, TransactionMode
from zeus.store.trial_logs import KeptLog, last_lines, most_bytes

SWEEP_SECONDS = 3600.0  # between two removals of old logs by one process
_PUT = (
    f"{rows.insert('zeus_logs', ('job_id', 'number', 'at', 'log'))}"
    " ON CONFLICT (job_id, number) DO UPDATE SET at = excluded.at, log = excluded.log"
)


class SqlLogs:
    """`Logs` in the same database as the facts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._swept = -SWEEP_SECONDS  # when old logs were last removed

    def keep(self, job_id: str, number: int, text: str, *, trial_id: str = "") -> None:
        days, text = settings.logs_days(), last_lines(text, most_bytes())
        with self._database.transaction(TransactionMode.WRITE) as db:
            row, now = rows.take_job(db, job_id), db.now()
            current().need(job_id, row.owner)
            rows.find_trial(db, row, number, trial_id)
            if days and text:
                db.run(_PUT, job_id=job_id, number=number, at=utc(now), log=text)
            if not 0 <= now - self._swept <= SWEEP_SECONDS:
                db.run("DELETE FROM zeus_logs WHERE at < :before", before=utc(now - days * 86_400))
                self._swept = now

    def find(self, job_id: str, number: int) -> KeptLog | None:
        select = "SELECT at, log FROM zeus_logs WHERE job_id = :job_id AND number = :number"
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(select, job_id=job_id, number=number)
        return None if found is None else KeptLog(*found)

    def times(self, job_id: str, numbers: Iterable[int] | None = None) -> dict[int, str]:
        some = None if numbers is None else set(numbers)
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.rows("SELECT number, at FROM zeus_logs WHERE job_id = :job_id", job_id=job_id)
        return {number: at for number, at in found if some is None or number in some}
