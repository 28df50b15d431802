"""The store in a database: SQLite for one machine, Postgres for many. SQLAlchemy is imported here and below only.

A verb is one transaction that first takes its job: on SQLite the whole database (BEGIN IMMEDIATE), on Postgres the job's
row (SELECT ... FOR UPDATE). Both go with the process that holds them.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DatabaseError, IntegrityError

from zeus.errors import InputError, ZeusError
from zeus.job import Event, JobSpec, Outcome, Pardoned, Profiled, Trial, history
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import lines as jsonl
from zeus.store import rules
from zeus.store.api import LEASE_SECONDS, Decide, Job, Kept, Request, utc
from zeus.store.database import EVENTS, JOBS, PROFILES, REVISIONS, TRIALS, bring_up_to_date, connect
from zeus.store.lines import Dump, History
from zeus.wire import dumps, from_json, loads, to_json

Row = sa.Row[Any]


class SqlStore:
    """A `Store` over one database."""

    def __init__(self, url: str, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._engine = connect(url)
        self._pid = os.getpid()
        self._name = self._engine.url.render_as_string(hide_password=True)
        try:
            bring_up_to_date(self._engine)
        except DatabaseError as wrong:
            raise InputError(f"the store {self._name} cannot be opened: {wrong.orig}. Check ZEUS_STORE.") from wrong

    # ------------------------------------------------------------------ jobs

    def register(self, spec: JobSpec, *, policy_version: int = 1) -> Job:
        """Made, found or revised."""
        try:
            return self._register(spec, policy_version)
        except IntegrityError:  # somebody else was first to make it; SQLite's writers wait in line, Postgres's do not
            return self._register(spec, policy_version)

    def _register(self, spec: JobSpec, policy_version: int) -> Job:
        with self._write() as db:
            now = utc(self._wall())
            row = db.execute(sa.select(JOBS).where(JOBS.c.id == spec.id).with_for_update()).one_or_none()
            if row is None:
                job = rules.created(spec, policy_version, now, lambda: secrets.randbelow(2**31), uuid4().hex)
                _insert_job(db, History([job]))
                return job
            known = _job(row)
            job = rules.revised(known, spec, policy_version, now, row.sequence)
            if job != known:
                text = dumps(jsonl.job_to_json(job))
                db.execute(sa.insert(REVISIONS).values(job_id=job.id, revision=job.revision, job=text))
                db.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(job=text))
            return job

    def job(self, job_id: str) -> Job:
        """Its latest revision."""
        with self._read() as db:
            return _job(_known(db, job_id))

    def jobs(self) -> list[Job]:
        """All, by id."""
        with self._read() as db:
            return sorted((_job(row) for row in db.execute(sa.select(JOBS))), key=lambda job: job.id)

    def revisions(self, job_id: str) -> list[Job]:
        """The first one first."""
        with self._read() as db:
            return _revisions(db, _known(db, job_id))

    def forget(self, job_id: str) -> None:
        """Remove a job and its profiles."""
        with self._write() as db:
            _take(db, job_id)
            for table in (TRIALS, EVENTS, REVISIONS):
                db.execute(sa.delete(table).where(table.c.job_id == job_id))
            db.execute(sa.delete(PROFILES).where(PROFILES.c.job == job_id))
            db.execute(sa.delete(JOBS).where(JOBS.c.id == job_id))

    # ------------------------------------------------------------------ trials

    def ask(self, job_id: str, request: Request, decide: Decide, *, lease: float = LEASE_SECONDS) -> Trial:
        """Expire, decide, open."""
        while True:
            with self._write() as db:
                row, now = _take(db, job_id), self._wall()
                if _expire(db, row, utc(now)):
                    continue  # committed first: what `decide` has seen and folded can then not be undone
                tries: list[Trial] = []
                if request.recurrence is not None:
                    of_it = (TRIALS.c.job_id == job_id) & (TRIALS.c.recurrence == request.recurrence)
                    tries = [_trial(one) for one in db.execute(sa.select(TRIALS.c.trial).where(of_it))]
                ask = rules.next_ask(job_id, request, row.trials + 1, row.recurrences, tries)
                decision = decide(_job(row), ask, lambda since: _facts(db, job_id, since))
                trial = Trial(ask=ask, decision=decision, asked=row.sequence + 1)
                kept = Kept(trial=trial, asked_at=utc(now), changed_at=utc(now), leased_until=utc(now + lease))
                db.execute(sa.insert(TRIALS), [_kept_row(job_id, kept)])
                _advance(db, job_id, trial.asked, trials=ask.number, recurrences=max(row.recurrences, ask.recurrence))
                return trial

    def renew(
        self, job_id: str, number: int, so_far: Outcome | None = None, *, lease: float = LEASE_SECONDS
    ) -> Trial:
        """Hold on to an open trial."""
        so_far = rules.lost(so_far)
        with self._write() as db:
            row = _take(db, job_id)
            kept = _kept(db, row, number)
            if kept.leased_until is not None:
                until = utc(self._wall() + lease)
                _change(db, job_id, replace(kept, leased_until=until, so_far=so_far or kept.so_far))
            return kept.trial

    def tell(self, job_id: str, number: int, outcome: Outcome) -> Trial:
        """End a trial, once."""
        with self._write() as db:
            row = _take(db, job_id)
            kept = _kept(db, row, number)
            trial = rules.told(job_id, kept.trial, outcome, row.sequence + 1)
            if trial is not kept.trial:
                _change(db, job_id, replace(kept, trial=trial, changed_at=utc(self._wall()), leased_until=None))
                _advance(db, job_id, trial.sequence)
            return trial

    def expire(self, job_id: str) -> list[Trial]:
        """Lose what has lapsed."""
        with self._write() as db:
            return _expire(db, _take(db, job_id), utc(self._wall()))

    def trials(self, job_id: str) -> list[Kept]:
        """By number."""
        with self._read() as db:
            _known(db, job_id)
            return _all_kept(db, job_id)

    # ------------------------------------------------------------------ other facts

    def facts(self, job_id: str, since: int = 0) -> list[Event]:
        """Events after this sequence number."""
        with self._read() as db:
            _known(db, job_id)
            return _facts(db, job_id, since)

    def profiled(self, job_id: str, batch_size: int, gpu_model: str, epoch_cost: float) -> Profiled:
        """Note an epoch's cost."""
        with self._write() as db:
            sequence = _take(db, job_id).sequence + 1
            note = Profiled(sequence=sequence, batch_size=batch_size, gpu_model=gpu_model, epoch_cost=epoch_cost)
            return _note(db, job_id, note)

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        """Note a pardon."""
        with self._write() as db:
            return _note(db, job_id, Pardoned(sequence=_take(db, job_id).sequence + 1, batch_size=batch_size))

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        """Of exactly this key."""
        with self._read() as db:
            text = db.scalar(sa.select(PROFILES.c.profile).where(_is(key)))
            return None if text is None else from_json(loads(text), PowerProfile)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """In place of the last."""
        try:
            self._put_profile(key, profile)
        except IntegrityError:  # two put the first one at once: the later one stands
            self._put_profile(key, profile)

    def _put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        with self._write() as db:
            _put(db, key, profile)

    # ------------------------------------------------------------------ export and import

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        """As lines of JSON."""
        dump, wanted = Dump(), None if job_ids is None else list(job_ids)
        with self._read(isolation_level="REPEATABLE READ") as db:
            rows = db.execute(sa.select(JOBS)).all() if wanted is None else [_known(db, one) for one in wanted]
            for row in rows:
                events = sa.select(EVENTS.c.event).where(EVENTS.c.job_id == row.id).order_by(EVENTS.c.sequence)
                notes = [jsonl.note_from_json(loads(text)) for text in db.scalars(events)]
                dump.jobs[row.id] = History(_revisions(db, row), _all_kept(db, row.id), notes)
            for row in db.execute(sa.select(PROFILES)):
                if wanted is None or row.job in wanted:
                    key = ProfileKey(row.job, row.batch_size, row.gpu_model, row.gpu_count)
                    dump.profiles[key] = from_json(loads(row.profile), PowerProfile)
        return jsonl.write(dump)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """All or nothing."""
        dump = jsonl.read(lines)
        try:
            with self._write() as db:
                here = set(db.scalars(sa.select(JOBS.c.id)))
                if both := sorted(set(dump.jobs) & here):
                    raise rules.already_here(both)
                for job_id, past in dump.jobs.items():
                    _insert_job(db, past)
                    if past.trials:
                        db.execute(sa.insert(TRIALS), [_kept_row(job_id, kept) for kept in past.trials])
                    for note in past.notes:
                        _insert_note(db, job_id, note)
                for key, profile in dump.profiles.items():
                    _put(db, key, profile)
        except IntegrityError as wrong:  # somebody registered one of them meanwhile
            raise rules.already_here(sorted(dump.jobs)) from wrong
        return sorted(dump.jobs)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    # ------------------------------------------------------------------ transactions

    def _write(self) -> Any:
        return self._transaction(self._here().execution_options(zeus_begin="BEGIN IMMEDIATE"))

    def _read(self, isolation_level: str | None = None) -> Any:
        engine = self._here()
        if isolation_level is not None and engine.dialect.name != "sqlite":  # whose every read is of one moment
            engine = engine.execution_options(isolation_level=isolation_level)
        return self._transaction(engine)

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as db:
                yield db
        except IntegrityError:
            raise
        except DatabaseError as wrong:
            raise ZeusError(
                f"the store {self._name} did not answer: {wrong.orig}. Nothing was changed; try again."
            ) from wrong

    def _here(self) -> Engine:
        """The engine; a forked child does not touch its parent's connections."""
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        return self._engine


def _known(db: Connection, job_id: str, *, take: bool = False) -> Row:
    query = sa.select(JOBS).where(JOBS.c.id == job_id)
    row = db.execute(query.with_for_update() if take else query).one_or_none()
    if row is None:
        raise rules.no_job(job_id, sorted(db.scalars(sa.select(JOBS.c.id))))
    return row


def _take(db: Connection, job_id: str) -> Row:
    return _known(db, job_id, take=True)


def _job(row: Row) -> Job:
    return jsonl.job_from_json(loads(row.job), row.generation)


def _revisions(db: Connection, row: Row) -> list[Job]:
    query = sa.select(REVISIONS.c.job).where(REVISIONS.c.job_id == row.id).order_by(REVISIONS.c.revision)
    return [jsonl.job_from_json(loads(text), row.generation) for text in db.scalars(query)]


def _insert_job(db: Connection, past: History) -> None:
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


def _advance(db: Connection, job_id: str, sequence: int, **counters: int) -> None:
    db.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(sequence=sequence, **counters))


def _trial(row: Row) -> Trial:
    return from_json(loads(row.trial), Trial)


def _kept(db: Connection, job: Row, number: int) -> Kept:
    row = db.execute(sa.select(TRIALS).where(_of(job.id, number))).one_or_none()
    if row is None:
        raise rules.no_trial(job.id, number, job.trials)
    return _to_kept(row)


def _all_kept(db: Connection, job_id: str) -> list[Kept]:
    query = sa.select(TRIALS).where(TRIALS.c.job_id == job_id).order_by(TRIALS.c.number)
    return [_to_kept(row) for row in db.execute(query)]


def _to_kept(row: Row) -> Kept:
    return Kept(
        trial=_trial(row),
        asked_at=row.asked_at,
        changed_at=row.changed_at,
        leased_until=row.leased_until,
        so_far=None if row.so_far is None else from_json(loads(row.so_far), Outcome),
    )


def _kept_row(job_id: str, kept: Kept) -> dict[str, Any]:
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


def _change(db: Connection, job_id: str, kept: Kept) -> None:
    db.execute(sa.update(TRIALS).where(_of(job_id, kept.trial.number)).values(_kept_row(job_id, kept)))


def _expire(db: Connection, job: Row, now: str) -> list[Trial]:
    lapsed = (TRIALS.c.job_id == job.id) & (TRIALS.c.leased_until <= now)
    lost: list[Trial] = []
    for row in db.execute(sa.select(TRIALS).where(lapsed).order_by(TRIALS.c.number)).all():
        kept = _to_kept(row)
        trial = kept.trial.lose(job.sequence + len(lost) + 1, kept.so_far)
        _change(db, job.id, replace(kept, trial=trial, changed_at=now, leased_until=None))
        lost.append(trial)
    if lost:
        _advance(db, job.id, lost[-1].sequence)
    return lost


def _facts(db: Connection, job_id: str, since: int) -> list[Event]:
    trials = sa.select(TRIALS.c.trial).where(TRIALS.c.job_id == job_id, TRIALS.c.sequence > since)
    notes = sa.select(EVENTS.c.event).where(EVENTS.c.job_id == job_id, EVENTS.c.sequence > since)
    found: list[Event] = [_trial(row) for row in db.execute(trials)]
    found += [jsonl.note_from_json(loads(text)) for text in db.scalars(notes)]
    return [event for event in history(found) if event.sequence > since]


def _note(db: Connection, job_id: str, note: Any) -> Any:
    _insert_note(db, job_id, note)
    _advance(db, job_id, note.sequence)
    return note


def _insert_note(db: Connection, job_id: str, note: Profiled | Pardoned) -> None:
    row = {"job_id": job_id, "sequence": note.sequence, "event": dumps(to_json(note))}
    db.execute(sa.insert(EVENTS), [row])


def _put(db: Connection, key: ProfileKey, profile: PowerProfile) -> None:
    text = dumps(to_json(profile))
    if not db.execute(sa.update(PROFILES).where(_is(key)).values(profile=text)).rowcount:
        row = {name: getattr(key, name) for name in ("job", "batch_size", "gpu_model", "gpu_count")}
        db.execute(sa.insert(PROFILES), [{**row, "profile": text}])


def _of(job_id: str, number: int) -> sa.ColumnElement[bool]:
    return (TRIALS.c.job_id == job_id) & (TRIALS.c.number == number)


def _is(key: ProfileKey) -> sa.ColumnElement[bool]:
    c = PROFILES.c
    same = (c.job == key.job, c.batch_size == key.batch_size, c.gpu_model == key.gpu_model, c.gpu_count == key.gpu_count)
    return sa.and_(*same)
