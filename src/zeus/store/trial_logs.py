"""The ends of trials' logs, which travel to the store so that a log can be read from any machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zeus import settings
from zeus.store.actor import current
from zeus.store.api import utc
from zeus.store.sql import rows
from zeus.store.sql.database import Database, TransactionMode

MOST_BYTES = 65_536  # of one log
SWEEP_SECONDS = 3600.0  # between two removals of old logs by one process
_PUT = (
    f"{rows.insert('zeus_logs', ('job_id', 'number', 'at', 'log'))}"
    " ON CONFLICT (job_id, number) DO UPDATE SET at = excluded.at, log = excluded.log"
)


class KeptLog(NamedTuple):
    """The end of a log, and when it was stored."""

    at: str
    text: str


class Logs:
    """The logs in a store. They are not facts: exports have none, and old ones are removed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._swept = -SWEEP_SECONDS  # when old logs were last removed

    def keep(self, job_id: str, number: int, text: str, *, trial_id: str = "") -> None:
        """Keep the end of a trial's log in place of an earlier one. Logs that are too old are removed.

        Raises NotKnown if there is no such trial, and Forbidden if the job is somebody else's.
        """
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
        """The end of a trial's log, if one is kept."""
        select = "SELECT at, log FROM zeus_logs WHERE job_id = :job_id AND number = :number"
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.row(select, job_id=job_id, number=number)
        return None if found is None else KeptLog(*found)

    def times(self, job_id: str, numbers: Iterable[int] | None = None) -> dict[int, str]:
        """When the log of each of these trials was stored. Trials without one are missing. Default: of all trials."""
        some = None if numbers is None else set(numbers)
        with self._database.transaction(TransactionMode.READ) as db:
            found = db.rows("SELECT number, at FROM zeus_logs WHERE job_id = :job_id", job_id=job_id)
        return {number: at for number, at in found if some is None or number in some}


def last_lines(text: str, most: int = MOST_BYTES) -> str:
    """The last whole lines that fit into so many bytes of UTF-8; part of a line that is longer than that.

    >>> last_lines("one\\ntwo\\nthree\\n", 10), last_lines("abcdef", 3)
    ('two\\nthree\\n', 'def')
    """
    data = text.replace("\0", "").encode(errors="replace")
    if len(data) <= most:
        return data.decode()
    cut = data[len(data) - most :]
    begins_a_line = data[len(data) - most - 1 : len(data) - most] == b"\n"
    first = cut.find(b"\n") + 1
    whole = cut if begins_a_line or not 0 < first < len(cut) else cut[first:]
    return whole.decode(errors="ignore")


def most_bytes() -> int:
    """How much of a log is kept: what `[retention]` says, and never more than travels."""
    return min(MOST_BYTES, settings.log_bytes())
