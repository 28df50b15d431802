"""Rows of the database to facts and back, each within a transaction that its caller holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from zeus.job import Ask, Event, Outcome, Pardoned, Profiled, Trial, history
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import lines as jsonl
from zeus.store import rules
from zeus.store.api import Job, Kept
from zeus.store.database import EVENTS, JOBS, PROFILES, REVISIONS, TRIALS
from zeus.store.driver import Statement, Transaction
from zeus.store.lines import History
from zeus.wire import dumps, from_json, loads, to_json

LATELY = 256  # trials that are not parsed again; the tries of a recurrence and what runs at the same time are fewer
Note = TypeVar("Note", Profiled, Pardoned)


class JobRow(NamedTuple):
    """A row of JOBS."""

    id: str
    generation: str
    sequence: int
    trials: int
    recurrences: int
    job: str


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


# `of` and `nr` name the row, as the names of columns stand for what is written.
_OF: sa.BindParameter[str] = sa.bindparam("of")
_NR: sa.BindParameter[int] = sa.bindparam("nr", type_=sa.Integer)
_AFTER: sa.BindParameter[int] = sa.bindparam("after", type_=sa.Integer)
_NOW: sa.BindParameter[str] = sa.bindparam("now", type_=sa.Text)
_JOB = sa.select(*(JOBS.c[name] for name in JobRow._fields)).where(JOBS.c.id == _OF)
_TRIALS = sa.select(*(TRIALS.c[name] for name in TrialRow._fields)).where(TRIALS.c.job_id == _OF)
_CHANGES = ("sequence", "changed_at", "leased_until", "so_far", "trial")

FIND_JOB = Statement(_JOB)
# Nothing but the row itself is asked for: Postgres would read the rest as it was before the row was free to take.
TAKE_JOB = Statement(_JOB.with_for_update())
ADVANCE = Statement(sa.update(JOBS).where(JOBS.c.id == _OF), ("sequence", "trials", "recurrences"))
FIND_TRIAL = Statement(_TRIALS.where(TRIALS.c.number == _NR))
ALL_TRIALS = Statement(_TRIALS.order_by(TRIALS.c.number))
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


def find_job(db: Transaction, job_id: str, *, take: bool = False) -> JobRow:
    """Its row, taken until the transaction ends where it is to be changed."""
    row = db.row(TAKE_JOB if take else FIND_JOB, {"of": job_id})
    if row is None:
        raise rules.no_job(job_id, sorted(db.connection.scalars(sa.select(JOBS.c.id))))
    return JobRow(*row)


def take_job(db: Transaction, job_id: str) -> JobRow:
    """Its row, which nobody else changes until this transaction ends."""
    return find_job(db, job_id, take=True)


def all_jobs(db: Connection) -> list[JobRow]:
    """In no order."""
    return [JobRow(*row) for row in db.execute(sa.select(*(JOBS.c[name] for name in JobRow._fields)))]


def to_job(row: JobRow) -> Job:
    """Its latest revision."""
    return _read_job(row.job, row.generation)


@lru_cache(64)
def _read_job(text: str, generation: str) -> Job:
    return jsonl.job_from_json(loads(text), generation)


def revisions_of(db: Connection, row: JobRow) -> list[Job]:
    """The first one first."""
    query = sa.select(REVISIONS.c.job).where(REVISIONS.c.job_id == row.id).order_by(REVISIONS.c.revision)
    return [jsonl.job_from_json(loads(text), row.generation) for text in db.scalars(query)]


def insert_job(db: Connection, past: History) -> None:
    """A job with its revisions and counters."""
    latest = past.revisions[-1]
    texts = [dumps(jsonl.job_to_json(job)) for job in past.revisions]
    row = JobRow(
        id=latest.id,
        generation=latest.generation,
        sequence=past.sequence,
        trials=len(past.trials),
        recurrences=past.recurrences,
        job=texts[-1],
    )
    db.execute(sa.insert(JOBS), row._asdict())
    rows = [{"job_id": latest.id, "revision": number, "job": text} for number, text in enumerate(texts, 1)]
    db.execute(sa.insert(REVISIONS), rows)


def advance(db: Transaction, job: JobRow, sequence: int, ask: Ask | None = None) -> None:
    """The sequence number was used, by an ask or by something else."""
    trials = job.trials if ask is None else ask.number
    recurrences = job.recurrences if ask is None else max(job.recurrences, ask.recurrence)
    db.run(ADVANCE, {"of": job.id, "sequence": sequence, "trials": trials, "recurrences": recurrences})


def tries_of(db: Transaction, job: JobRow, recurrence: int | None) -> list[Trial]:
    """The trials of one recurrence."""
    if recurrence is None or not 1 <= recurrence <= job.recurrences:
        return []
    return [_to_kept(row).trial for row in db.rows(TRIES, {"of": job.id, "nr": recurrence})]


def find_trial(db: Transaction, job: JobRow, number: int) -> Kept:
    """A trial of a job whose row is at hand."""
    if not 1 <= number <= job.trials:
        raise rules.no_trial(job.id, number, job.trials)
    return _to_kept(db.row(FIND_TRIAL, {"of": job.id, "nr": number}))


def trials_of(db: Transaction, job_id: str) -> list[Kept]:
    """By number."""
    return [_to_kept(row) for row in db.rows(ALL_TRIALS, {"of": job_id})]


def to_trial(text: str) -> Trial:
    """The trial that a text holds. What this process wrote a moment ago it need not read again."""
    known = _lately.get(text)
    return _keep(text, from_json(loads(text), Trial)) if known is None else known


_lately: dict[str, Trial] = {}


def _keep(text: str, trial: Trial) -> Trial:
    if len(_lately) >= LATELY:
        _lately.clear()
    _lately[text] = trial
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


def _row_of(job_id: str, kept: Kept) -> TrialRow:
    """The row that a trial is kept as."""
    text = dumps(to_json(kept.trial))
    _keep(text, kept.trial)
    return TrialRow(
        job_id=job_id,
        number=kept.trial.number,
        recurrence=kept.trial.ask.recurrence,
        sequence=kept.trial.sequence,
        asked_at=kept.asked_at,
        changed_at=kept.changed_at,
        leased_until=kept.leased_until,
        so_far=None if kept.so_far is None else dumps(to_json(kept.so_far)),
        trial=text,
    )


def insert_trials(db: Connection, job_id: str, trials: Sequence[Kept]) -> None:
    """Write trials as they stand."""
    if trials:
        db.execute(sa.insert(TRIALS), [_row_of(job_id, kept)._asdict() for kept in trials])


def open_trial(db: Transaction, job_id: str, kept: Kept) -> None:
    """Write a new one."""
    db.run(OPEN, _row_of(job_id, kept)._asdict())


def change_trial(db: Transaction, job_id: str, kept: Kept) -> None:
    """Write a trial as it stands now."""
    row = _row_of(job_id, kept)
    changes = {name: getattr(row, name) for name in _CHANGES}
    db.run(CHANGE, {"of": job_id, "nr": row.number, **changes})


def expire(db: Transaction, job: JobRow, now: str) -> list[Trial]:
    """Lose what has lapsed."""
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
    """What happened after this sequence number, in order."""
    if since >= job.sequence:
        return []
    found = db.rows(FACTS, {"of": job.id, "after": since})
    facts = [to_trial(text) if trial else jsonl.note_from_json(loads(text)) for text, trial in found]
    return [event for event in history(facts) if event.sequence > since]


def add_event(db: Transaction, job: JobRow, note: Note) -> Note:
    """Something happened that is not a trial's."""
    insert_notes(db.connection, job.id, [note])
    advance(db, job, note.sequence)
    return note


def insert_notes(db: Connection, job_id: str, notes: Sequence[Profiled | Pardoned]) -> None:
    """Write events that have their numbers."""
    if notes:
        rows = [{"job_id": job_id, "sequence": note.sequence, "event": dumps(to_json(note))} for note in notes]
        db.execute(sa.insert(EVENTS), rows)


def put_profile(db: Connection, key: ProfileKey, profile: PowerProfile) -> None:
    """In place of the last one of its key."""
    text = dumps(to_json(profile))
    if not db.execute(sa.update(PROFILES).where(is_key(key)).values(profile=text)).rowcount:
        row = {name: getattr(key, name) for name in ("job", "batch_size", "gpu_model", "gpu_count")}
        db.execute(sa.insert(PROFILES), [{**row, "profile": text}])


def is_key(key: ProfileKey) -> sa.ColumnElement[bool]:
    """Exactly this key."""
    c = PROFILES.c
    same = (
        c.job == key.job,
        c.batch_size == key.batch_size,
        c.gpu_model == key.gpu_model,
        c.gpu_count == key.gpu_count,
    )
    return sa.and_(*same)
