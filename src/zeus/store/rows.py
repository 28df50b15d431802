"""Rows of the database to facts and back, each within a transaction that its caller holds."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from zeus.job import Event, Outcome, Pardoned, Profiled, Trial, history
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import lines as jsonl
from zeus.store import rules
from zeus.store.api import Job, Kept
from zeus.store.database import EVENTS, JOBS, PROFILES, REVISIONS, TRIALS
from zeus.store.lines import History
from zeus.wire import dumps, from_json, loads, to_json

Row: TypeAlias = sa.Row[Any]
Note = TypeVar("Note", Profiled, Pardoned)

# Built once: to put a statement together takes longer than to run it. `of` and `nr` name the row, as the names of
# columns stand for what is written.
_OF: sa.BindParameter[str] = sa.bindparam("of")
_NR: sa.BindParameter[int] = sa.bindparam("nr")
_AFTER: sa.BindParameter[Any] = sa.bindparam("after")
_THIS = (TRIALS.c.job_id == _OF) & (TRIALS.c.number == _NR)
_FIRST_LAPSE = sa.select(sa.func.min(TRIALS.c.leased_until)).where(TRIALS.c.job_id == _OF).scalar_subquery()
_JOB = sa.select(JOBS).where(JOBS.c.id == _OF)
_JOB_TAKEN = sa.select(JOBS, _FIRST_LAPSE.label("first_lapse")).where(JOBS.c.id == _OF).with_for_update(of=JOBS)
_ADVANCE = sa.update(JOBS).where(JOBS.c.id == _OF)
_TRIAL = sa.select(TRIALS).where(_THIS)
_TRIES = sa.select(TRIALS.c.trial).where(TRIALS.c.job_id == _OF, TRIALS.c.recurrence == _NR).order_by(TRIALS.c.number)
_OPEN = sa.insert(TRIALS)
_CHANGE = sa.update(TRIALS).where(_THIS)
_LAPSED = sa.select(TRIALS).where(TRIALS.c.job_id == _OF, TRIALS.c.leased_until <= _AFTER).order_by(TRIALS.c.number)
_FACTS = sa.union_all(
    sa.select(TRIALS.c.trial).where(TRIALS.c.job_id == _OF, TRIALS.c.sequence > _AFTER),
    sa.select(EVENTS.c.event).where(EVENTS.c.job_id == _OF, EVENTS.c.sequence > _AFTER),
)


def find_job(db: Connection, job_id: str, *, take: bool = False) -> Row:
    """Its row, taken until the transaction ends where it is to be changed."""
    row = db.execute(_JOB_TAKEN if take else _JOB, {"of": job_id}).one_or_none()
    if row is None:
        raise rules.no_job(job_id, sorted(db.scalars(sa.select(JOBS.c.id))))
    return row


def take_job(db: Connection, job_id: str) -> Row:
    """Its row, which nobody else changes until this transaction ends."""
    return find_job(db, job_id, take=True)


def to_job(row: Row) -> Job:
    """Its latest revision."""
    return _read_job(row.job, row.generation)


@lru_cache(64)
def _read_job(text: str, generation: str) -> Job:
    return jsonl.job_from_json(loads(text), generation)


def revisions_of(db: Connection, row: Row) -> list[Job]:
    """The first one first."""
    query = sa.select(REVISIONS.c.job).where(REVISIONS.c.job_id == row.id).order_by(REVISIONS.c.revision)
    return [jsonl.job_from_json(loads(text), row.generation) for text in db.scalars(query)]


def insert_job(db: Connection, past: History) -> None:
    """A job with its revisions and counters."""
    latest = past.revisions[-1]
    texts = [dumps(jsonl.job_to_json(job)) for job in past.revisions]
    db.execute(
        sa.insert(JOBS).values(
            id=latest.id,
            generation=latest.generation,
            sequence=past.sequence,
            trials=len(past.trials),
            recurrences=past.recurrences,
            job=texts[-1],
        )
    )
    rows = [{"job_id": latest.id, "revision": number, "job": text} for number, text in enumerate(texts, 1)]
    db.execute(sa.insert(REVISIONS), rows)


def advance(db: Connection, job_id: str, sequence: int, **counters: int) -> None:
    """The sequence number was used."""
    db.execute(_ADVANCE, {"of": job_id, "sequence": sequence, **counters})


def to_trial(row: Row) -> Trial:
    """The trial of a row."""
    return from_json(loads(row.trial), Trial)


def tries_of(db: Connection, job_id: str, recurrence: int) -> list[Trial]:
    """The trials of one recurrence."""
    return [to_trial(row) for row in db.execute(_TRIES, {"of": job_id, "nr": recurrence})]


def open_trial(db: Connection, job_id: str, kept: Kept) -> None:
    """Write a new one."""
    db.execute(_OPEN, row_of(job_id, kept))


def find_trial(db: Connection, job: Row, number: int) -> Kept:
    """A trial of a job whose row is at hand."""
    row = db.execute(_TRIAL, {"of": job.id, "nr": number}).one_or_none()
    if row is None:
        raise rules.no_trial(job.id, number, job.trials)
    return _to_kept(row)


def trials_of(db: Connection, job_id: str) -> list[Kept]:
    """By number."""
    query = sa.select(TRIALS).where(TRIALS.c.job_id == job_id).order_by(TRIALS.c.number)
    return [_to_kept(row) for row in db.execute(query)]


def _to_kept(row: Row) -> Kept:
    return Kept(
        trial=to_trial(row),
        asked_at=row.asked_at,
        changed_at=row.changed_at,
        leased_until=row.leased_until,
        so_far=None if row.so_far is None else from_json(loads(row.so_far), Outcome),
    )


def row_of(job_id: str, kept: Kept) -> dict[str, Any]:
    """The row that a trial is kept as."""
    return {
        "job_id": job_id,
        "number": kept.trial.number,
        "recurrence": kept.trial.ask.recurrence,
        "sequence": kept.trial.sequence,
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
        "so_far": None if kept.so_far is None else dumps(to_json(kept.so_far)),
        "trial": dumps(to_json(kept.trial)),
    }


def change_trial(db: Connection, job_id: str, kept: Kept) -> None:
    """Write a trial as it stands now."""
    row = row_of(job_id, kept)
    names = ("sequence", "changed_at", "leased_until", "so_far", "trial")
    db.execute(_CHANGE, {"of": job_id, "nr": kept.trial.number, **{name: row[name] for name in names}})


def expire(db: Connection, job: Row, now: str) -> list[Trial]:
    """Lose what has lapsed."""
    lost: list[Trial] = []
    if job.first_lapse is None or job.first_lapse > now:
        return lost
    for row in db.execute(_LAPSED, {"of": job.id, "after": now}).all():
        kept = _to_kept(row)
        trial = kept.trial.lose(job.sequence + len(lost) + 1, kept.so_far)
        change_trial(db, job.id, replace(kept, trial=trial, changed_at=now, leased_until=None))
        lost.append(trial)
    if lost:
        advance(db, job.id, lost[-1].sequence)
    return lost


def events_after(db: Connection, job_id: str, since: int) -> list[Event]:
    """What happened after this sequence number, in order."""
    found = [_event(text) for text in db.scalars(_FACTS, {"of": job_id, "after": since})]
    return [event for event in history(found) if event.sequence > since]


def _event(text: str) -> Event:
    data = loads(text)
    return from_json(data, Trial) if data.get("kind") == "trial" else jsonl.note_from_json(data)


def add_event(db: Connection, job_id: str, note: Note) -> Note:
    """Something happened that is not a trial's."""
    insert_note(db, job_id, note)
    advance(db, job_id, note.sequence)
    return note


def insert_note(db: Connection, job_id: str, note: Profiled | Pardoned) -> None:
    """Write an event that has its number."""
    row = {"job_id": job_id, "sequence": note.sequence, "event": dumps(to_json(note))}
    db.execute(sa.insert(EVENTS), [row])


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
