"""Converts between rows of the database and facts. The caller holds the transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from secrets import token_hex
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import sqlalchemy as sa

from zeus.job import Ask, Event, Kept, Outcome, Pardoned, Profiled, Trial, history, replace
from zeus.job.wire import dumps, from_json, loads, to_text
from zeus.store import json_lines as jsonl
from zeus.store import rules
from zeus.store.api import START, Digest, Job, Log, LogPoint, Names
from zeus.store.json_lines import History
from zeus.store.sql.database import Statement, Transaction
from zeus.store.sql.tables import ASKS, DIGESTS, EVENTS, JOBS, MARKS, NUMBERS, PLACES, PROFILES, REVISIONS, TRIALS

LATELY = 256  # parsed trials in the cache: more than a recurrence has, or run at the same time
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


# `of` and `nr` select the row, because parameters with the names of columns are values to write.
_OF: sa.BindParameter[str] = sa.bindparam("of")
_NR: sa.BindParameter[int] = sa.bindparam("nr", type_=sa.Integer)
_AFTER: sa.BindParameter[int] = sa.bindparam("after", type_=sa.Integer)
_NOW: sa.BindParameter[str] = sa.bindparam("now", type_=sa.Text)
_JOBS = sa.select(*(JOBS.c[name] for name in JobRow._fields))
_JOB = _JOBS.where(JOBS.c.id == _OF)
_TRIALS = sa.select(*(TRIALS.c[name] for name in TrialRow._fields)).where(TRIALS.c.job_id == _OF)
_CHANGES = ("sequence", "changed_at", "leased_until", "so_far", "trial")

ALL_JOBS = Statement(_JOBS)
IDS = Statement(sa.select(JOBS.c.id).order_by(JOBS.c.id))
SOME_IDS = Statement(sa.select(JOBS.c.id).order_by(JOBS.c.id).limit(_NR).offset(_AFTER))
IDS_FROM = Statement(sa.select(JOBS.c.id).where(JOBS.c.id >= _OF).order_by(JOBS.c.id).limit(_NR).offset(_AFTER))
IDS_BEFORE = Statement(sa.select(JOBS.c.id).where(JOBS.c.id < _OF).order_by(JOBS.c.id.desc()).limit(_NR).offset(_AFTER))
COUNT_JOBS = Statement(sa.select(sa.func.count()).select_from(JOBS))
FIND_JOB = Statement(_JOB)
# Only the row itself is selected: Postgres would read anything else as it was before the lock was granted.
TAKE_JOB = Statement(_JOB.with_for_update())
MAKE_JOB = Statement(sa.insert(JOBS), JobRow._fields)
REVISE_JOB = Statement(sa.update(JOBS).where(JOBS.c.id == _OF), ("job",))
ADD_REVISION = Statement(sa.insert(REVISIONS), ("job_id", "revision", "job"))
REVISIONS_OF = Statement(sa.select(REVISIONS.c.job).where(REVISIONS.c.job_id == _OF).order_by(REVISIONS.c.revision))
ADVANCE = Statement(sa.update(JOBS).where(JOBS.c.id == _OF), ("sequence", "trials", "recurrences", "mark"))
ADD_MARK = Statement(sa.insert(MARKS), ("job_id", "sequence", "mark"))
FIND_MARK = Statement(sa.select(MARKS.c.mark).where(MARKS.c.job_id == _OF, MARKS.c.sequence == _NR))
FIND_TRIAL = Statement(_TRIALS.where(TRIALS.c.number == _NR))
SOME_TRIALS = Statement(_TRIALS.order_by(TRIALS.c.number).limit(_NR).offset(_AFTER))
_LEASED = TRIALS.c.leased_until > sa.literal_column("''")  # a range, so that SQLite uses the index of leases
SOME_RUNNING = Statement(_TRIALS.where(_LEASED).order_by(TRIALS.c.number).limit(_NR).offset(_AFTER))
COUNT = Statement(sa.select(sa.func.count()).select_from(TRIALS).where(TRIALS.c.job_id == _OF))
TRIES = Statement(_TRIALS.where(TRIALS.c.recurrence == _NR).order_by(TRIALS.c.number))
LAPSED = Statement(_TRIALS.where(TRIALS.c.leased_until <= _NOW).order_by(TRIALS.c.number))
OPEN = Statement(sa.insert(TRIALS), TrialRow._fields)
CHANGE = Statement(sa.update(TRIALS).where(TRIALS.c.job_id == _OF, TRIALS.c.number == _NR), _CHANGES)
FACTS = Statement(
    sa.union_all(
        sa.select(TRIALS.c.trial, sa.literal_column("1")).where(TRIALS.c.job_id == _OF, TRIALS.c.sequence > _AFTER),
        sa.select(EVENTS.c.event, sa.literal_column("0")).where(EVENTS.c.job_id == _OF, EVENTS.c.sequence > _AFTER),
    )
)
ADD_NOTE = Statement(sa.insert(EVENTS), ("job_id", "sequence", "event"))
NOTES = Statement(sa.select(EVENTS.c.event).where(EVENTS.c.job_id == _OF).order_by(EVENTS.c.sequence))
FORGET = [
    Statement(sa.delete(column.table).where(column == _OF))
    for column in (
        ASKS.c.job_id,
        DIGESTS.c.job_id,
        MARKS.c.job_id,
        PLACES.c.job_id,
        TRIALS.c.job_id,
        EVENTS.c.job_id,
        REVISIONS.c.job_id,
        PROFILES.c.job,
    )
]
FORGET_JOB = Statement(sa.delete(JOBS).where(JOBS.c.id == _OF))
RESTART_JOB = Statement(sa.update(JOBS).where(JOBS.c.id == _OF), tuple(name for name in JobRow._fields if name != "id"))
FIND_ASK = Statement(sa.select(ASKS.c.number).where(ASKS.c.job_id == _OF, ASKS.c.key == sa.bindparam("key")))
_NAMED = [sa.bindparam(f"name{number}", type_=sa.Text) for number in range(SOME)]
JOBS_NAMED = Statement(_JOBS.where(JOBS.c.id.in_(_NAMED)))
DIGESTS_NAMED = Statement(sa.select(*DIGESTS.c).where(DIGESTS.c.job_id.in_(_NAMED)))
PUT_DIGEST = Statement(
    sa.text(
        "INSERT INTO zeus_digests (job_id, stamp, digest) VALUES (:job_id, :stamp, :digest)"
        " ON CONFLICT (job_id) DO UPDATE SET stamp = excluded.stamp, digest = excluded.digest"
    )
)
KEEP_ASK = Statement(sa.insert(ASKS), ("job_id", "key", "number"))
FIND_NUMBER = Statement(sa.select(NUMBERS.c.trials).where(NUMBERS.c.job_id == _OF))
PUT_NUMBER = Statement(
    sa.text(
        "INSERT INTO zeus_numbers (job_id, trials) VALUES (:job_id, :trials)"
        " ON CONFLICT (job_id) DO UPDATE SET trials = excluded.trials"
    )
)


def find_job(db: Transaction, job_id: str) -> JobRow:
    row = db.row(FIND_JOB, {"of": job_id})
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
    row = db.row(TAKE_JOB, {"of": job_id})
    return None if row is None else JobRow(*row)


def job_ids(db: Transaction) -> list[str]:
    return [job_id for (job_id,) in db.rows(IDS)]


def neighbours(db: Transaction, job_id: str) -> list[str]:
    """The jobs next to this one in the order of names. Comparing an unknown name with all of them takes too long."""
    before, after = (
        db.rows(statement, {"of": job_id, "nr": NEIGHBOURS, "after": 0}) for statement in (IDS_BEFORE, IDS_FROM)
    )
    return [*reversed([name for (name,) in before]), *(name for (name,) in after)]


def names_of(db: Transaction, contains: str, after: int, most: int) -> Names:
    """The names of jobs, as `Store.names` returns them."""
    if contains:  # compared here, because databases differ in what they take for the same letter
        found = [name for name in job_ids(db) if contains.lower() in name.lower()]
        return Names(len(found), found[after : after + most])
    total = int(db.row(COUNT_JOBS, {})[0])
    page = db.rows(SOME_IDS, {"after": min(after, total), "nr": min(most, total)})
    return Names(total, [name for (name,) in page])


def _named(db: Transaction, statement: Statement, names: Sequence[str]) -> Iterator[Any]:
    """The rows of these jobs. A statement takes SOME names; if there are fewer, the last one is repeated."""
    for first in range(0, len(names), SOME):
        some = names[first : first + SOME]
        padded = [*some, *[some[-1]] * (SOME - len(some))]
        yield from db.rows(statement, {f"name{number}": name for number, name in enumerate(padded)})


def digests_of(db: Transaction, names: Sequence[str]) -> dict[str, Digest]:
    return {name: Digest(stamp, text) for name, stamp, text in _named(db, DIGESTS_NAMED, names)}


def put_digests(db: Transaction, digests: dict[str, Digest]) -> None:
    """In the order of names, so that two writers on Postgres never wait for each other."""
    rows = [{"job_id": name, "stamp": one.stamp, "digest": one.text} for name, one in sorted(digests.items())]
    db.run_each(PUT_DIGEST, rows)


def all_jobs(db: Transaction) -> list[JobRow]:
    return [JobRow(*row) for row in db.rows(ALL_JOBS)]


def to_job(row: JobRow) -> Job:
    return _read_job(row.job, row.generation)


@lru_cache(64)
def _read_job(text: str, generation: str) -> Job:
    return jsonl.job_from_json(loads(text), generation)


def revisions_of(db: Transaction, row: JobRow) -> list[Job]:
    return [jsonl.job_from_json(loads(text), row.generation) for (text,) in db.rows(REVISIONS_OF, {"of": row.id})]


def insert_job(db: Transaction, past: History, used: int = 0) -> None:
    """Write a job with its revisions, trials and other events. Earlier lives used the trial numbers up to `used`."""
    latest = past.revisions[-1]
    texts = [dumps(jsonl.job_to_json(job)) for job in past.revisions]
    row = JobRow(
        id=latest.id,
        generation=latest.generation,
        sequence=past.sequence,
        trials=max(used, latest.first - 1, *(kept.trial.number for kept in past.trials), 0),
        recurrences=past.recurrences,
        job=texts[-1],
        mark="",
    )
    db.run(MAKE_JOB, row._asdict())
    revisions = [{"job_id": latest.id, "revision": number, "job": text} for number, text in enumerate(texts, 1)]
    db.run_each(ADD_REVISION, revisions)
    db.run_each(OPEN, [_row_of(latest.id, kept) for kept in past.trials])
    db.run_each(ADD_NOTE, [_note_row(latest.id, note) for note in past.notes])


def revise_job(db: Transaction, row: JobRow, job: Job, *, void: bool = False) -> Job:
    """Store a revision if it differs from the last. Without `void` it must not change the target of trials."""
    known = to_job(row)
    if job == known:
        return job
    if not void and (refused := rules.voids(known, job, _each_trial(db, row))) is not None:
        raise refused
    text = dumps(jsonl.job_to_json(job))
    db.run(ADD_REVISION, {"job_id": job.id, "revision": job.revision, "job": text})
    db.run(REVISE_JOB, {"of": job.id, "job": text})
    return job


def forget_job(db: Transaction, job: JobRow) -> None:
    """Delete everything about a job except its last trial number."""
    for statement in (*FORGET, FORGET_JOB):
        db.run(statement, {"of": job.id})
    db.run(PUT_NUMBER, {"job_id": job.id, "trials": max(job.trials, numbers_used(db, job.id) or 0)})


def numbers_used(db: Transaction, job_id: str) -> int | None:
    """The last trial number of a job that was forgotten; None if none was."""
    found = db.row(FIND_NUMBER, {"of": job_id})
    return None if found is None else int(found[0])


def restart_job(db: Transaction, job: Job) -> None:
    """Reset a job to this first revision. Its row stays, because on Postgres others may wait for its lock."""
    for statement in FORGET:
        db.run(statement, {"of": job.id})
    text = dumps(jsonl.job_to_json(job))
    begun = JobRow(job.id, job.generation, 0, job.first - 1, 0, text, "")._asdict()
    db.run(RESTART_JOB, {"of": begun.pop("id"), **begun})
    db.run(ADD_REVISION, {"job_id": job.id, "revision": job.revision, "job": text})


def advance(db: Transaction, job: JobRow, sequence: int, ask: Ask | None = None) -> None:
    """Record that this sequence number is used, by an ask or by another event."""
    trials = job.trials if ask is None else ask.number
    recurrences = job.recurrences if ask is None else max(job.recurrences, ask.recurrence)
    mark = token_hex(8)
    db.run(ADVANCE, {"of": job.id, "sequence": sequence, "trials": trials, "recurrences": recurrences, "mark": mark})
    db.run(ADD_MARK, {"job_id": job.id, "sequence": sequence, "mark": mark})


def tries_of(db: Transaction, job: JobRow, recurrence: int | None) -> list[Trial]:
    if recurrence is None or not 1 <= recurrence <= job.recurrences:
        return []
    return [_to_kept(row).trial for row in db.rows(TRIES, {"of": job.id, "nr": recurrence})]


def find_trial(db: Transaction, job: JobRow, number: int, trial_id: str = "") -> Kept:
    """One trial of a job. NotKnown if there is none of this number, or if it has another id."""
    found = db.row(FIND_TRIAL, {"of": job.id, "nr": number}) if 1 <= number <= job.trials else None
    if found is None:
        raise rules.no_trial(job.id, number, job.trials)
    kept = _to_kept(found)
    rules.meant(job.id, kept.trial, trial_id)
    return kept


def trials_of(
    db: Transaction, job: JobRow, after: int = 0, most: int | None = None, *, running: bool = False
) -> list[Kept]:
    """The trials by number, without the first `after` of them, at most `most`. With `running`: only the open ones."""
    number, after = job.trials if most is None else min(most, job.trials), min(after, job.trials)
    statement = SOME_RUNNING if running else SOME_TRIALS
    return [_to_kept(row) for row in db.rows(statement, {"of": job.id, "after": after, "nr": number})]


def _each_trial(db: Transaction, job: JobRow) -> Iterator[Trial]:
    """All trials, read only when the first is needed."""
    for kept in trials_of(db, job):
        yield kept.trial


def count_of(db: Transaction, job: JobRow) -> int:
    """The number of trials. It may be less than the last trial number, as earlier lives used some."""
    found = db.row(COUNT, {"of": job.id})
    return 0 if found is None else int(found[0])


def to_trial(text: str) -> Trial:
    """Parse a trial. Trials that this process recently wrote or read come from a cache."""
    cached = _cache.get(text)
    return _keep(text, from_json(loads(text), Trial)) if cached is None else cached


_cache: dict[str, Trial] = {}


def _keep(text: str, trial: Trial) -> Trial:
    if len(_cache) >= LATELY:
        _cache.clear()
    _cache[text] = trial
    return trial


def _to_kept(values: tuple[Any, ...]) -> Kept:
    row = TrialRow(*values)
    return Kept(
        trial=to_trial(row.trial),
        asked_at=row.asked_at,
        changed_at=row.changed_at,
        leased_until=row.leased_until,
        so_far=None if row.so_far is None else from_json(loads(row.so_far), Outcome),
    )


def _row_of(job_id: str, kept: Kept) -> dict[str, Any]:
    trial = kept.trial
    text = to_text(trial)
    _keep(text, trial)
    return {
        "job_id": job_id,
        "number": trial.ask.number,
        "recurrence": trial.ask.recurrence,
        "sequence": trial.sequence,
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
        "so_far": None if kept.so_far is None else to_text(kept.so_far),
        "trial": text,
    }


def open_trial(db: Transaction, job_id: str, kept: Kept) -> None:
    db.run(OPEN, _row_of(job_id, kept))


def change_trial(db: Transaction, job_id: str, kept: Kept) -> None:
    """Update the row of a trial."""
    row = _row_of(job_id, kept)
    db.run(CHANGE, {"of": job_id, "nr": row["number"], **{name: row[name] for name in _CHANGES}})


def expire(db: Transaction, job: JobRow, now: str) -> list[Trial]:
    """Mark the trials LOST whose leases have lapsed, and return them."""
    lost: list[Trial] = []
    for row in db.rows(LAPSED, {"of": job.id, "now": now}):
        kept = _to_kept(row)
        trial = kept.trial.lose(job.sequence + len(lost) + 1, kept.so_far)
        change_trial(db, job.id, replace(kept, trial=trial, changed_at=now, leased_until=None))
        lost.append(trial)
    if lost:
        advance(db, job, lost[-1].sequence)
    return lost


def events_after(db: Transaction, job: JobRow, since: int) -> list[Event]:
    """The events after this sequence number, in order."""
    if since >= job.sequence:
        return []
    found = db.rows(FACTS, {"of": job.id, "after": since})
    facts = [to_trial(text) if trial else jsonl.note_from_json(loads(text)) for text, trial in found]
    return [event for event in history(facts) if event.sequence > since]


def log_after(db: Transaction, job: JobRow, since: LogPoint = START) -> Log:
    """The events after this point, or all events if the point is of another history."""
    end = LogPoint(job.sequence, job.mark)
    begin = since if since in (START, end) or since.mark == _mark_at(db, job, since.sequence) else START
    return Log(begin, events_after(db, job, begin.sequence), end)


def _mark_at(db: Transaction, job: JobRow, sequence: int) -> str | None:
    """The mark at a sequence number; None if it is not used yet. Empty for events of an import or of version 0.1."""
    found = db.row(FIND_MARK, {"of": job.id, "nr": sequence}) if sequence <= job.sequence else None
    return (None if sequence > job.sequence else "") if found is None else str(found[0])


def add_event(db: Transaction, job: JobRow, note: Note) -> Note:
    """Write an event that does not belong to a trial."""
    db.run(ADD_NOTE, _note_row(job.id, note))
    advance(db, job, note.sequence)
    return note


def notes_of(db: Transaction, job_id: str) -> list[Profiled | Pardoned]:
    """The events that do not belong to a trial, in order."""
    return [jsonl.note_from_json(loads(text)) for (text,) in db.rows(NOTES, {"of": job_id})]


def _note_row(job_id: str, note: Profiled | Pardoned) -> dict[str, Any]:
    return {"job_id": job_id, "sequence": note.sequence, "event": to_text(note)}


def pulse(db: Transaction, names: Sequence[str] | None = None) -> dict[str, str]:
    found = all_jobs(db) if names is None else (JobRow(*row) for row in _named(db, JOBS_NAMED, names))
    return {row.id: pulse_of(row) for row in found}


def pulse_of(row: JobRow) -> str:
    """A text that changes whenever the job's facts or its spec do."""
    return f"{row.generation}:{row.sequence}:{row.mark}:{crc32(row.job.encode()):08x}"


def asked_before(db: Transaction, job: JobRow, key: str | None) -> Trial | None:
    """The trial that an ask with this key has opened, or None."""
    found = None if key is None else db.row(FIND_ASK, {"of": job.id, "key": key})
    return None if found is None else find_trial(db, job, found[0]).trial


def keep_ask(db: Transaction, job_id: str, key: str, number: int) -> None:
    """Remember the key of an ask, in case the ask is repeated."""
    db.run(KEEP_ASK, {"job_id": job_id, "key": key, "number": number})
