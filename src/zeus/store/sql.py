"""The store in a database: SQLite for one machine, Postgres for many.

A verb is one transaction that first takes its job: on SQLite the whole database (BEGIN IMMEDIATE), on Postgres the
job's row (SELECT ... FOR UPDATE). Both go with the process that holds them. Only this module, and `rows` and `database`
below it, know SQLAlchemy.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError, IntegrityError

from zeus.errors import InputError, StoreError
from zeus.job import Event, JobSpec, Outcome, Pardoned, Profiled, Trial
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import lines as jsonl
from zeus.store import rules
from zeus.store.api import LEASE_SECONDS, Decide, Job, Kept, Request, utc
from zeus.store.database import (
    BUSY_SECONDS,
    EVENTS,
    JOBS,
    PROFILES,
    REVISIONS,
    TRIALS,
    bring_up_to_date,
    connect,
    is_away,
)
from zeus.store.driver import Transaction
from zeus.store.lines import Dump, History
from zeus.store.rows import (
    TAKE_JOB,
    JobRow,
    add_event,
    advance,
    all_jobs,
    change_trial,
    events_after,
    expire,
    find_job,
    find_trial,
    insert_job,
    insert_notes,
    insert_trials,
    is_key,
    open_trial,
    put_profile,
    revisions_of,
    take_job,
    to_job,
    trials_of,
    tries_of,
)
from zeus.wire import dumps, from_json, loads


class SqlStore:
    """A `Store` over one database."""

    def __init__(self, url: str, wall: Callable[[], float] = time.time, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._wall = wall
        self._engine = connect(url, busy_seconds)
        self._writer = self._engine.execution_options(zeus_begin="BEGIN IMMEDIATE")
        self._driver = self._engine.dialect.loaded_dbapi  # whose errors come as they are from what is run often
        self._pid = os.getpid()
        self._name = self._engine.url.render_as_string(hide_password=True)
        try:
            bring_up_to_date(self._engine)
        except DBAPIError as wrong:
            what = StoreError if is_away(wrong.orig) else InputError
            raise what(f"the store {self._name} cannot be opened: {_said(wrong)}. Check ZEUS_STORE.") from wrong

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
            found = db.row(TAKE_JOB, {"of": spec.id})
            if found is None:
                job = rules.created(spec, policy_version, now, lambda: secrets.randbelow(2**31), uuid4().hex)
                insert_job(db.connection, History([job]))
                return job
            row = JobRow(*found)
            known = to_job(row)
            job = rules.revised(known, spec, policy_version, now, row.sequence)
            if job != known:
                text = dumps(jsonl.job_to_json(job))
                revision = {"job_id": job.id, "revision": job.revision, "job": text}
                db.connection.execute(sa.insert(REVISIONS), revision)
                db.connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values(job=text))
            return job

    def job(self, job_id: str) -> Job:
        """Its latest revision."""
        with self._read() as db:
            return to_job(find_job(db, job_id))

    def jobs(self) -> list[Job]:
        """All, by id."""
        with self._read() as db:
            return sorted((to_job(row) for row in all_jobs(db.connection)), key=lambda job: job.id)

    def revisions(self, job_id: str) -> list[Job]:
        """The first one first."""
        with self._read() as db:
            return revisions_of(db.connection, find_job(db, job_id))

    def forget(self, job_id: str) -> None:
        """Remove a job and its profiles."""
        with self._write() as db:
            take_job(db, job_id)
            for column in (TRIALS.c.job_id, EVENTS.c.job_id, REVISIONS.c.job_id, PROFILES.c.job, JOBS.c.id):
                db.connection.execute(sa.delete(column.table).where(column == job_id))

    # ------------------------------------------------------------------ trials

    def ask(self, job_id: str, request: Request, decide: Decide, *, lease: float = LEASE_SECONDS) -> Trial:
        """Expire, decide, open."""
        while True:
            with self._write() as db:
                row, now = take_job(db, job_id), self._wall()
                if expire(db, row, utc(now)):
                    continue  # committed first: what `decide` has seen and folded can then not be undone
                tries = tries_of(db, row, request.recurrence)
                ask = rules.next_ask(job_id, request, row.trials + 1, row.recurrences, tries)
                decision = decide(to_job(row), ask, partial(events_after, db, row))
                trial = Trial(ask=ask, decision=decision, asked=row.sequence + 1)
                at = utc(now)
                open_trial(db, job_id, Kept(trial=trial, asked_at=at, changed_at=at, leased_until=utc(now + lease)))
                advance(db, row, trial.asked, ask)
                return trial

    def renew(self, job_id: str, number: int, so_far: Outcome | None = None, *, lease: float = LEASE_SECONDS) -> Trial:
        """Hold on to an open trial."""
        so_far = rules.lost(so_far)
        with self._write() as db:
            row = take_job(db, job_id)
            kept = find_trial(db, row, number)
            if kept.leased_until is not None:
                until = utc(self._wall() + lease)
                change_trial(db, job_id, replace(kept, leased_until=until, so_far=so_far or kept.so_far))
            return kept.trial

    def tell(self, job_id: str, number: int, outcome: Outcome) -> Trial:
        """End a trial, once."""
        with self._write() as db:
            row = take_job(db, job_id)
            kept = find_trial(db, row, number)
            trial = rules.told(job_id, kept.trial, outcome, row.sequence + 1)
            if trial is not kept.trial:
                change_trial(db, job_id, replace(kept, trial=trial, changed_at=utc(self._wall()), leased_until=None))
                advance(db, row, trial.sequence)
            return trial

    def expire(self, job_id: str) -> list[Trial]:
        """Lose what has lapsed."""
        with self._write() as db:
            return expire(db, take_job(db, job_id), utc(self._wall()))

    def trial(self, job_id: str, number: int) -> Kept:
        """As it stands."""
        with self._read() as db:
            return find_trial(db, find_job(db, job_id), number)

    def trials(self, job_id: str) -> list[Kept]:
        """By number."""
        with self._read() as db:
            find_job(db, job_id)
            return trials_of(db, job_id)

    # ------------------------------------------------------------------ other facts

    def facts(self, job_id: str, since: int = 0) -> list[Event]:
        """Events after this sequence number."""
        with self._read() as db:
            return events_after(db, find_job(db, job_id), since)

    def profiled(
        self, job_id: str, batch_size: int, gpu_model: str, *, joules: float, seconds: float, max_watts: float
    ) -> Profiled:
        """Note an epoch's cost."""
        with self._write() as db:
            row = take_job(db, job_id)
            note = Profiled(
                sequence=row.sequence + 1,
                batch_size=batch_size,
                gpu_model=gpu_model,
                joules=joules,
                seconds=seconds,
                max_watts=max_watts,
            )
            return add_event(db, row, note)

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        """Note a pardon."""
        with self._write() as db:
            row = take_job(db, job_id)
            return add_event(db, row, Pardoned(sequence=row.sequence + 1, batch_size=batch_size))

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        """Of exactly this key."""
        with self._read() as db:
            text = db.connection.scalar(sa.select(PROFILES.c.profile).where(is_key(key)))
            return None if text is None else from_json(loads(text), PowerProfile)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """In place of the last."""
        try:
            self._put_profile(key, profile)
        except IntegrityError:  # two put the first one at once: the later one stands
            self._put_profile(key, profile)

    def _put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        with self._write() as db:
            put_profile(db.connection, key, profile)

    # ------------------------------------------------------------------ export and import

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        """As lines of JSON."""
        dump, wanted = Dump(), None if job_ids is None else list(job_ids)
        with self._read(isolation_level="REPEATABLE READ") as db:
            rows = all_jobs(db.connection) if wanted is None else [find_job(db, one) for one in wanted]
            for row in rows:
                events = sa.select(EVENTS.c.event).where(EVENTS.c.job_id == row.id).order_by(EVENTS.c.sequence)
                notes = [jsonl.note_from_json(loads(text)) for text in db.connection.scalars(events)]
                dump.jobs[row.id] = History(revisions_of(db.connection, row), trials_of(db, row.id), notes)
            for job, *rest, profile in db.connection.execute(sa.select(PROFILES)):
                if wanted is None or job in wanted:
                    dump.profiles[ProfileKey(job, *rest)] = from_json(loads(profile), PowerProfile)
        return jsonl.write(dump)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """All or nothing."""
        dump = jsonl.read(lines)
        try:
            with self._write() as db:
                here = set(db.connection.scalars(sa.select(JOBS.c.id)))
                if both := sorted(set(dump.jobs) & here):
                    raise rules.already_here(both)
                for job_id, past in dump.jobs.items():
                    insert_job(db.connection, past)
                    insert_trials(db.connection, job_id, past.trials)
                    insert_notes(db.connection, job_id, past.notes)
                for key, profile in dump.profiles.items():
                    put_profile(db.connection, key, profile)
        except IntegrityError as wrong:  # somebody registered one of them meanwhile
            raise rules.already_here(sorted(dump.jobs)) from wrong
        return sorted(dump.jobs)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    # ------------------------------------------------------------------ transactions

    def _write(self) -> AbstractContextManager[Transaction]:
        return self._transaction(self._writer)

    def _read(self, isolation_level: str | None = None) -> AbstractContextManager[Transaction]:
        if isolation_level is None or self._engine.dialect.name == "sqlite":  # whose every read is of one moment
            return self._transaction(self._engine)
        return self._transaction(self._engine.execution_options(isolation_level=isolation_level))

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Transaction]:
        if self._pid != os.getpid():  # a forked child does not touch its parent's connections
            self._engine.dispose(close=False)
            self._writer = self._engine.execution_options(zeus_begin="BEGIN IMMEDIATE")
            self._pid = os.getpid()
            engine = self._engine.execution_options(**engine.get_execution_options())
        ending = False
        try:
            with engine.begin() as connection:
                yield Transaction(connection)
                ending = True
        except (DBAPIError, self._driver.Error) as wrong:
            cause = wrong.orig if isinstance(wrong, DBAPIError) else wrong
            if isinstance(cause, self._driver.IntegrityError):
                raise  # its caller knows what it means
            if isinstance(cause, self._driver.DataError):
                raise InputError(f"the store {self._name} cannot hold what was given: {_said(wrong)}.") from wrong
            so = "Whether the change was made is not known." if ending else "Nothing was changed; try again."
            raise StoreError(f"the store {self._name} did not answer: {_said(wrong)}. {so}") from wrong


def _said(wrong: BaseException) -> str:
    """What the database said, on one line."""
    cause = wrong.orig if isinstance(wrong, DBAPIError) else wrong
    return " ".join(str(cause).split()).rstrip(".")
