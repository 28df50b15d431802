"""Converts between rows of the database and facts. The caller holds the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from zeus.job import Ask, Ending, Event, Origin, Outcome, Pardoned, Profiled, Trial, TrialRecord, history, replace
from zeus.job.wire import dumps, from_json, loads, plain, read, to_text
from zeus.store import json_lines as jsonl
from zeus.store import rules
from zeus.store.api import START, FoundTrials, Job, Log, LogPoint, Names, TrialFilter
from zeus.store.json_lines import History
from zeus.store.sql.database import Transaction

LATELY = 512  # parsed trials in the cache: more than a recurrence has, or run at the same time
NEIGHBOURS = 50  # names before and after an unknown one, among which a similar one is looked for
SOME = 100  # names in one statement
Note = TypeVar("Note", Profiled, Pardoned)


class JobRow(NamedTuple):
    """A row of JOBS."""

    id: str
    generation: str
    sequence: int
    trials: int
    recurrences: int
    job: str
    mark: str
    owner: str


class TrialRow(NamedTuple):
    """A row of TRIALS."""

    job_id: str
    number: int
    recurrence: int
    sequence: int
    asked_at: str
    changed_at: str
    leased_until: str | None
    so_far: str | None
    trial: str
    origin: str | None


def insert(table: str, columns: Sequence[str]) -> str:
    """The statement that inserts a row with a value for each of these columns."""
    values = ", ".join(f":{column}" for column in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"


_JOBS = f"SELECT {', '.join(JobRow._fields)} FROM zeus_jobs"
EACH_TRIAL = f"SELECT {', '.join(TrialRow._fields)} FROM zeus_trials"
_TRIALS = f"{EACH_TRIAL} WHERE job_id = :job_id"
_BY_NUMBER = "ORDER BY number LIMIT :most OFFSET :after"
_OPEN = insert("zeus_trials", TrialRow._fields)
_ADD_REVISION = insert("zeus_revisions", ("job_id", "revision", "job"))
_ADD_NOTE = insert("zeus_events", ("job_id", "sequence", "event"))
_NAMED = ", ".join(f":name{number}" for number in range(SOME))
_ADVANCE = (
    "UPDATE zeus_jobs SET sequence = :sequence, trials = :trials, recurrences = :recurrences, mark = :mark"
    " WHERE id = :job_id"
)
_ADD_MARK = insert("zeus_marks", ("job_id", "sequence", "mark"))
_CHANGE = (
    "UPDATE zeus_trials SET sequence = :sequence, changed_at = :changed_at, leased_until = :leased_until,"
    " so_far = :so_far, trial = :trial WHERE job_id = :job_id AND number = :number"
)
_FACTS = (
    "SELECT trial, 1 FROM zeus_trials WHERE job_id = :job_id AND sequence > :after"
    " UNION ALL SELECT event, 0 FROM zeus_events WHERE job_id = :job_id AND sequence > :after"
)
# All that belongs to a job, by the column that names it.
_TABLES = ("asks", "digests", "logs", "snapshots", "marks", "places", "trials", "events", "revisions")
_PARTS = (
    *(f"zeus_{one} WHERE job_id" for one in _TABLES),
    "zeus_profiles WHERE job",
)


def find_job(db: Transaction, job_id: str) -> JobRow:
    row = db.row(f"{_JOBS} WHERE id = :job_id", job_id=job_id)
    if row is None:
        raise rules.no_job(job_id, neighbours(db, job_id))
    return JobRow(*row)


def take_job(db: Transaction, job_id: str) -> JobRow:
    """The row of a job, locked until this transaction ends. NotKnown if there is no such job."""
    row = take_job_if_any(db, job_id)
    if row is None:
        raise rules.no_job(job_id, neighbours(db, job_id))
    return row


def take_job_if_any(db: Transaction, job_id: str) -> JobRow | None:
    """The row of a job, locked until this transaction ends, or None."""
    # Only the row itself is selected: Postgres would read anything else as it was before the lock was granted.
    row = db.row(f"{_JOBS} WHERE id = :job_id FOR UPDATE", job_id=job_id)
    return None if row is None else JobRow(*row)


def job_ids(db: Transaction) -> list[str]:
    return [job_id for (job_id,) in db.rows("SELECT id FROM zeus_jobs ORDER BY id")]


def neighbours(db: Transaction, job_id: str) -> list[str]:
    """The jobs next to this one in the order of names. Comparing an unknown name with all of them takes too long."""
    before, after = (
        db.rows(f"SELECT id FROM zeus_jobs WHERE id {side} LIMIT {NEIGHBOURS}", job_id=job_id)
        for side in ("< :job_id ORDER BY id DESC", ">= :job_id ORDER BY id")
    )
    return [*reversed([name for (name,) in before]), *(name for (name,) in after)]


def names_of(db: Transaction, contains: str, after: int, most: int) -> Names:
    """The names of jobs, as `Store.names` returns them."""
    if contains:  # compared here, because databases differ in what they take for the same letter
        found = [name for name in job_ids(db) if contains.lower() in name.lower()]
        return Names(len(found), found[after : after + most])
    total = int(db.row("SELECT count(*) FROM zeus_jobs")[0])
    limit = {"after": min(after, total), "most": min(most, total)}
    page = db.rows("SELECT id FROM zeus_jobs ORDER BY id LIMIT :most OFFSET :after", **limit)
    return Names(total, [name for (name,) in page])


def named(db: Transaction, select: str, column: str, names: Sequence[str] | None) -> Iterator[Any]:
    """The rows whose column names one of these jobs; all rows for None.

    A statement takes SOME names; if there are fewer, the last one is repeated.
    """
    if names is None:
        yield from db.rows(select)
        return
    word = "AND" if " WHERE " in select else "WHERE"
    for first in range(0, len(names), SOME):
        some = names[first : first + SOME]
        padded = [*some, *[some[-1]] * (SOME - len(some))]
        values = {f"name{number}": name for number, name in enumerate(padded)}
        yield from db.rows(f"{select} {word} {column} IN ({_NAMED})", **values)


def all_jobs(db: Transaction) -> list[JobRow]:
    return [JobRow(*row) for row in db.rows(_JOBS)]


def to_job(row: JobRow) -> Job:
    return _read_job(row.job, row.generation, row.owner)


@lru_cache(64)
def _read_job(text: str, generation: str, owner: str) -> Job:
    return replace(jsonl.job_from_json(loads(text), generation), owner=owner)


def revisions_of(db: Transaction, row: JobRow) -> list[Job]:
    found = db.rows("SELECT job FROM zeus_revisions WHERE job_id = :job_id ORDER BY revision", job_id=row.id)
    return [_read_job(text, row.generation, row.owner) for (text,) in found]


def insert_job(db: Transaction, past: History, used: int = 0) -> None:
    """Write a job with its revisions, trials and other events. Earlier generations used the numbers up to `used`."""
    latest = past.revisions[-1]
    texts = [dumps(jsonl.job_to_json(job)) for job in past.revisions]
    row = JobRow(
        id=latest.id,
        generation=latest.generation,
        sequence=past.sequence,
        trials=max(used, latest.first - 1, *(record.trial.number for record in past.trials), 0),
        recurrences=past.recurrences,
        job=texts[-1],
        mark="",
        owner=latest.owner,
    )
    db.run(insert("zeus_jobs", JobRow._fields), **row._asdict())
    revisions = [{"job_id": latest.id, "revision": number, "job": text} for number, text in enumerate(texts, 1)]
    db.run_each(_ADD_REVISION, revisions)
    db.run_each(_OPEN, [_row_of(latest.id, record) for record in past.trials])
    db.run_each(_ADD_NOTE, [_note_row(latest.id, note) for note in past.notes])


def revise_job(db: Transaction, row: JobRow, job: Job, *, void: bool = False) -> Job:
    """Store a revision if it differs from the last. Without `void` it must not change the target of trials."""
    known = to_job(row)
    if job == known:
        return job
    if not void and (refused := rules.check_comparable(known, job, _each_trial(db, row))) is not None:
        raise refused
    text = dumps(jsonl.job_to_json(job))
    db.run(_ADD_REVISION, job_id=job.id, revision=job.revision, job=text)
    db.run("UPDATE zeus_jobs SET job = :job WHERE id = :job_id", job_id=job.id, job=text)
    return job


def put_owner(db: Transaction, job_id: str, owner: str) -> None:
    """Say whose job it is."""
    db.run("UPDATE zeus_jobs SET owner = :owner WHERE id = :job_id", job_id=job_id, owner=owner)


def forget_job(db: Transaction, job: JobRow) -> None:
    """Delete everything about a job except its last trial number."""
    for part in (*_PARTS, "zeus_jobs WHERE id"):
        db.run(f"DELETE FROM {part} = :job_id", job_id=job.id)
    put = f"{insert('zeus_numbers', ('job_id', 'trials'))} ON CONFLICT (job_id) DO UPDATE SET trials = excluded.trials"
    db.run(put, job_id=job.id, trials=max(job.trials, numbers_used(db, job.id) or 0))


def numbers_used(db: Transaction, job_id: str) -> int | None:
    """The last trial number of a job that was forgotten; None if none was."""
    found = db.row("SELECT trials FROM zeus_numbers WHERE job_id = :job_id", job_id=job_id)
    return None if found is None else int(found[0])


def restart_job(db: Transaction, job: Job) -> None:
    """Reset a job to this first revision. Its row stays, because on Postgres others may wait for its lock."""
    for part in _PARTS:
        db.run(f"DELETE FROM {part} = :job_id", job_id=job.id)
    text = dumps(jsonl.job_to_json(job))
    begun = JobRow(job.id, job.generation, 0, job.first - 1, 0, text, "", job.owner)
    changes = ", ".join(f"{name} = :{name}" for name in JobRow._fields if name != "id")
    db.run(f"UPDATE zeus_jobs SET {changes} WHERE id = :id", **begun._asdict())
    db.run(_ADD_REVISION, job_id=job.id, revision=job.revision, job=text)


def advance(db: Transaction, job: JobRow, sequence: int, ask: Ask | None = None) -> None:
    """Record that this sequence number is used, by an ask or by another event."""
    trials = job.trials if ask is None else ask.number
    recurrences = job.recurrences if ask is None else max(job.recurrences, ask.recurrence)
    mark = token_hex(8)
    db.run(_ADVANCE, job_id=job.id, sequence=sequence, trials=trials, recurrences=recurrences, mark=mark)
    db.run(_ADD_MARK, job_id=job.id, sequence=sequence, mark=mark)


def tries_of(db: Transaction, job: JobRow, recurrence: int | None) -> list[Trial]:
    if recurrence is None or not 1 <= recurrence <= job.recurrences:
        return []
    found = db.rows(f"{_TRIALS} AND recurrence = :recurrence ORDER BY number", job_id=job.id, recurrence=recurrence)
    return [to_record(row).trial for row in found]


def find_trial(db: Transaction, job: JobRow, number: int, trial_id: str = "") -> TrialRecord:
    """One trial of a job. NotKnown if there is none of this number, or if it has another id."""
    is_there = 1 <= number <= job.trials
    found = db.row(f"{_TRIALS} AND number = :number", job_id=job.id, number=number) if is_there else None
    if found is None:
        raise rules.no_trial(job.id, number, job.trials)
    record = to_record(found)
    rules.check_trial_id(job.id, record.trial, trial_id)
    return record


def trials_of(
    db: Transaction, job: JobRow, after: int = 0, most: int | None = None, *, running: bool = False
) -> list[TrialRecord]:
    """The trials by number, without the first `after` of them, at most `most`. With `running`: only the open ones."""
    limit = {"most": job.trials if most is None else min(most, job.trials), "after": min(after, job.trials)}
    only = "AND leased_until > ''" if running else ""  # a range, so that SQLite uses the index of leases
    return [to_record(row) for row in db.rows(f"{_TRIALS} {only} {_BY_NUMBER}", job_id=job.id, **limit)]


def _each_trial(db: Transaction, job: JobRow) -> Iterator[Trial]:
    """All trials, read only when the first is needed."""
    for record in trials_of(db, job):
        yield record.trial


def count_of(db: Transaction, job: JobRow) -> int:
    """The number of trials. It may be less than the last trial number, as earlier generations used some."""
    return int(db.row("SELECT count(*) FROM zeus_trials WHERE job_id = :job_id", job_id=job.id)[0])


# Filters look at a few fields of the JSON of a trial, which takes a tenth of the time of reading it.
class _Size(msgspec.Struct):
    batch_size: int


class _End(msgspec.Struct):
    ending: Ending


class _Glance(msgspec.Struct):
    """What filters need of the JSON of a trial."""

    decision: _Size
    lost: int | None = None
    outcome: _End | None = None

    @property
    def ending(self) -> Ending:
        if self.outcome is not None:
            return self.outcome.ending
        return Ending.OPEN if self.lost is None else Ending.LOST


_glance = msgspec.json.Decoder(_Glance).decode


def find_trials(db: Transaction, job: JobRow, only: TrialFilter, after: int, most: int, *, newest: bool) -> FoundTrials:
    """A page of the trials that match."""
    if only == TrialFilter():
        total = count_of(db, job)
        first = max(0, total - after - most) if newest else after
        page = trials_of(db, job, first, max(0, min(most, total - after)))
        return FoundTrials(total, page[::-1] if newest else page)
    some = "AND leased_until > ''" if only.ending is Ending.OPEN else ""  # as in `trials_of`
    values = {} if only.recurrence is None else {"recurrence": only.recurrence}
    some += " AND recurrence = :recurrence" if values else ""
    order = "ORDER BY number DESC" if newest else "ORDER BY number"
    found = db.rows(f"{_TRIALS} {some} {order}", job_id=job.id, **values)
    matching = [row for row in found if _matches(TrialRow(*row).trial, only)]
    return FoundTrials(len(matching), [to_record(row) for row in matching[after : after + most]])


def _matches(trial: str, only: TrialFilter) -> bool:
    try:
        one = _glance(trial)
    except msgspec.MsgspecError:  # it is damaged, which whoever reads it in full is told
        return True
    return only.ending in (None, one.ending) and only.batch_size in (None, one.decision.batch_size)


def to_trial(text: str) -> Trial:
    """Parse a trial. Trials that this process recently wrote or read come from a cache."""
    cached = _cache.get(text)
    return _keep(text, from_json(loads(text), Trial)) if cached is None else cached


_cache: dict[str, Trial] = {}


def _keep(text: str, trial: Trial) -> Trial:
    with suppress(KeyError, RuntimeError):  # another thread was faster
        while len(_cache) >= LATELY:
            del _cache[next(iter(_cache))]
    _cache[text] = trial
    return trial


def to_record(values: tuple[Any, ...]) -> TrialRecord:
    row = TrialRow(*values)
    return TrialRecord(
        trial=to_trial(row.trial),
        asked_at=row.asked_at,
        changed_at=row.changed_at,
        leased_until=row.leased_until,
        so_far=None if row.so_far is None else from_json(loads(row.so_far), Outcome),
        origin=None if row.origin is None else read(loads(row.origin), Origin),
    )


def _row_of(job_id: str, record: TrialRecord) -> dict[str, Any]:
    trial = record.trial
    text = to_text(trial)
    _keep(text, trial)
    return {
        "job_id": job_id,
        "number": trial.ask.number,
        "recurrence": trial.ask.recurrence,
        "sequence": trial.sequence,
        "asked_at": record.asked_at,
        "changed_at": record.changed_at,
        "leased_until": record.leased_until,
        "so_far": None if record.so_far is None else to_text(record.so_far),
        "trial": text,
        "origin": None if record.origin is None else dumps(plain(record.origin)),
    }


def open_trial(db: Transaction, job_id: str, record: TrialRecord) -> None:
    db.run(_OPEN, **_row_of(job_id, record))


def change_trial(db: Transaction, job_id: str, record: TrialRecord) -> None:
    """Update the row of a trial."""
    db.run(_CHANGE, **_row_of(job_id, record))


def expire(db: Transaction, job: JobRow, now: str) -> list[Trial]:
    """Mark the trials LOST whose leases have lapsed, and return them."""
    lost: list[Trial] = []
    for row in db.rows(f"{_TRIALS} AND leased_until <= :now ORDER BY number", job_id=job.id, now=now):
        record = to_record(row)
        trial = record.trial.lose(job.sequence + len(lost) + 1, record.so_far)
        change_trial(db, job.id, replace(record, trial=trial, changed_at=now, leased_until=None))
        lost.append(trial)
    if lost:
        advance(db, job, lost[-1].sequence)
    return lost


def events_after(db: Transaction, job: JobRow, since: int) -> list[Event]:
    """The events after this sequence number, in order."""
    if since >= job.sequence:
        return []
    found = db.rows(_FACTS, job_id=job.id, after=since)
    facts = [to_trial(text) if trial else jsonl.note_from_json(loads(text)) for text, trial in found]
    return [event for event in history(facts) if event.sequence > since]


def log_after(db: Transaction, job: JobRow, since: LogPoint = START) -> Log:
    """The events after this point, or all events if the point is of another history."""
    end = LogPoint(job.sequence, job.mark)
    begin = since if since in (START, end) or since.mark == _mark_at(db, job, since.sequence) else START
    return Log(begin, events_after(db, job, begin.sequence), end)


def _mark_at(db: Transaction, job: JobRow, sequence: int) -> str | None:
    """The mark at a sequence number; None if it is not used yet. Empty for events of an import."""
    if sequence > job.sequence:
        return None
    find = "SELECT mark FROM zeus_marks WHERE job_id = :job_id AND sequence = :sequence"
    found = db.row(find, job_id=job.id, sequence=sequence)
    return "" if found is None else str(found[0])


def add_event(db: Transaction, job: JobRow, note: Note) -> Note:
    """Write an event that does not belong to a trial."""
    db.run(_ADD_NOTE, **_note_row(job.id, note))
    advance(db, job, note.sequence)
    return note


def notes_of(db: Transaction, job_id: str) -> list[Profiled | Pardoned]:
    """The events that do not belong to a trial, in order."""
    found = db.rows("SELECT event FROM zeus_events WHERE job_id = :job_id ORDER BY sequence", job_id=job_id)
    return [jsonl.note_from_json(loads(text)) for (text,) in found]


def _note_row(job_id: str, note: Profiled | Pardoned) -> dict[str, Any]:
    return {"job_id": job_id, "sequence": note.sequence, "event": to_text(note)}


def pulse(db: Transaction, names: Sequence[str] | None = None) -> dict[str, str]:
    return {row.id: pulse_of(row) for row in (JobRow(*row) for row in named(db, _JOBS, "id", names))}


def pulse_of(row: JobRow) -> str:
    """A text that changes whenever the job's facts or its spec do."""
    return f"{row.generation}:{row.sequence}:{row.mark}:{crc32((row.job + row.owner).encode()):08x}"
