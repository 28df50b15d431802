"""The store in a database: SQLite for one machine, Postgres for many.

A call that writes is one transaction, which first locks its job. SQLite locks the whole database (BEGIN IMMEDIATE).
Postgres locks the job's row (SELECT ... FOR UPDATE); after that, each statement sees all that was committed before
(READ COMMITTED). If the process ends, so does the lock.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from zeus.errors import InputError
from zeus.job import Gpus, JobSpec, Outcome, Pardoned, Profiled, Trial, TrialRecord, replace
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import json_lines as jsonl
from zeus.store import rules
from zeus.store.actor import current
from zeus.store.address import IN_MEMORY, address_of
from zeus.store.api import (
    LEASE_SECONDS,
    PAGE,
    START,
    Decide,
    Digest,
    FoundTrials,
    Glance,
    Job,
    Log,
    LogPoint,
    Names,
    Past,
    Request,
    Snapshot,
    TrialFilter,
    utc,
)
from zeus.store.audit import Action, Audit, note, revised, take
from zeus.store.json_lines import Dump, History
from zeus.store.sql import cache_rows, profile_rows, rows
from zeus.store.sql.database import CONNECTIONS, Conflict, Database, Transaction, TransactionMode
from zeus.store.tokens import Tokens
from zeus.store.trial_logs import Logs

if TYPE_CHECKING:
    from zeus.store.sql.care import Care

REGISTER_TRIES = 20  # attempts, if others create and remove the same job at the same time


class SqlStore:
    """A `Store` in a database."""

    def __init__(
        self,
        url: str,
        wall: Callable[[], float] | None = None,
        *,
        busy_seconds: float | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        self._url = url
        self._database = Database(url, busy_seconds, connections, wall)
        self._logs = Logs(self._database)

    @property
    def address(self) -> str | None:
        return None if self._url == IN_MEMORY else address_of(self._url)

    # ------------------------------------------------------------------ jobs

    def register(
        self, spec: JobSpec, *, policy_version: int = 1, revise: bool = True, void: bool = False, revive: bool = True
    ) -> Job:
        for left in reversed(range(REGISTER_TRIES)):
            try:
                return self._register(spec, policy_version, revise=revise, void=void, revive=revive)
            except Conflict:  # another process created the job first, and may have removed it since
                if not left:
                    raise
        raise AssertionError

    def _register(self, spec: JobSpec, policy_version: int, *, revise: bool, void: bool, revive: bool) -> Job:
        with self._write() as db:
            row = rows.take_job_if_any(db, spec.id)
            now = utc(db.now())
            if row is None:
                used = rows.numbers_used(db, spec.id)
                if used is not None and not revive:
                    raise rules.removed(spec.id)
                owner = current().owner
                job = rules.created(
                    spec, policy_version, now, lambda: secrets.randbelow(2**31), uuid4().hex, used or 0, owner
                )
                rows.insert_job(db, History([job]))
                note(db, job.id, Action.REGISTERED, {"owner": owner} if owner else None)
                return job
            current().need(row.id, row.owner)
            known = rows.to_job(row)
            job = rules.revised(known, spec, policy_version, now)
            if job != known and not revise:
                raise rules.differs(known, job)
            return revised(db, row, job, void=void)

    def revise(self, job_id: str, change: Callable[[Job], tuple[JobSpec, int]], *, void: bool = False) -> Job:
        with self._write() as db:
            row = take(db, job_id)
            known = rows.to_job(row)
            job = rules.revised(known, *change(known), utc(db.now()))
            return revised(db, row, job, void=void)

    def pause(self, job_id: str, *, paused: bool = True) -> Job:
        with self._write() as db:
            row, actor = take(db, job_id), current()
            known = rows.to_job(row)
            job = rules.paused(known, (actor.owner or actor.name) if paused else "", utc(db.now()))
            if job is not known:
                note(db, job_id, Action.PAUSED if paused else Action.RESUMED)
            return rows.revise_job(db, row, job)

    def own(self, job_id: str, owner: str) -> Job:
        rules.need_owner(owner)
        with self._write() as db:
            row = take(db, job_id)
            rules.may_give(current(), job_id)
            if owner != row.owner:
                rows.put_owner(db, job_id, owner)
                note(db, job_id, Action.OWNER, {"owner": {"old": row.owner, "new": owner}})
            return replace(rows.to_job(row), owner=owner)

    def job(self, job_id: str) -> Job:
        with self._read() as db:
            return rows.to_job(rows.find_job(db, job_id))

    def forget(self, job_id: str) -> None:
        with self._write() as db:
            row = take(db, job_id, removes=True)
            note(db, job_id, Action.REMOVED, {"trials": rows.count_of(db, row), "owner": row.owner})
            rows.forget_job(db, row)

    def restart(self, job_id: str, *, policy_version: int = 1, pulse: str | None = None) -> Job:
        with self._write() as db:
            row, now = take(db, job_id, removes=True), utc(db.now())
            known, found = rows.to_job(row), rows.pulse_of(row)
            generation, last = uuid4().hex, row.trials
            job = rules.next_generation(known, policy_version, now, generation, last=last, pulse=found, expected=pulse)
            note(db, job_id, Action.RESET, {"trials": rows.count_of(db, row)})
            rows.restart_job(db, job)
            return job

    # ------------------------------------------------------------------ trials

    def ask(
        self,
        job_id: str,
        request: Request,
        decide: Decide,
        *,
        lease: float = LEASE_SECONDS,
        key: str | None = None,
    ) -> Trial:
        while True:
            with self._write() as db:
                row, now = take(db, job_id), db.now()
                at = utc(now)
                if rows.expire(db, row, at):
                    continue  # commit first, so that nothing `decide` has seen can be undone
                if (before := cache_rows.asked_before(db, row, key)) is not None:
                    return before
                job = rows.to_job(row)
                if request.resume:
                    lately = rows.trials_of(db, row, max(0, rows.count_of(db, row) - rules.LATELY))
                    request = rules.resumed(request, [one.trial for one in lately])
                tries = rows.tries_of(db, row, request.recurrence)
                ask = rules.next_ask(
                    job.spec, request, row.trials + 1, row.recurrences, tries, uuid4().hex, last=bool(job.paused_by)
                )
                decision = decide(job, ask, partial(rows.log_after, db, row))
                trial = Trial(ask=ask, decision=decision, asked=row.sequence + 1)
                until = utc(now + lease)
                record = TrialRecord(trial=trial, asked_at=at, changed_at=at, leased_until=until, origin=request.origin)
                rows.open_trial(db, job_id, record)
                rows.advance(db, row, trial.asked, ask)
                if key is not None:
                    cache_rows.keep_ask(db, job_id, key, ask.number)
                return trial

    def renew(
        self,
        job_id: str,
        number: int,
        so_far: Outcome | None = None,
        *,
        trial_id: str = "",
        lease: float = LEASE_SECONDS,
    ) -> Trial:
        so_far = rules.check_progress(so_far)
        with self._write() as db:
            row = take(db, job_id)
            record = rows.find_trial(db, row, number, trial_id)
            if record.leased_until is not None:
                until = utc(db.now() + lease)
                rows.change_trial(db, job_id, replace(record, leased_until=until, so_far=so_far or record.so_far))
            return record.trial

    def tell(self, job_id: str, number: int, outcome: Outcome, *, trial_id: str = "") -> Trial:
        with self._write() as db:
            row = take(db, job_id)
            record = rows.find_trial(db, row, number, trial_id)
            trial = rules.apply_tell(job_id, record.trial, outcome, row.sequence + 1)
            if trial is not record.trial:
                now = utc(db.now())
                rows.change_trial(db, job_id, replace(record, trial=trial, changed_at=now, leased_until=None))
                rows.advance(db, row, trial.sequence)
            return trial

    def expire(self, job_id: str) -> list[Trial]:
        with self._write() as db:
            return rows.expire(db, rows.take_job(db, job_id), utc(db.now()))

    def past(self, job_id: str) -> Past:
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            row = rows.find_job(db, job_id)
            trials, notes = rows.trials_of(db, row), rows.notes_of(db, row.id)
            return Past(rows.to_job(row), trials, notes, profile_rows.profiles_of(db, row.id))

    def trial(self, job_id: str, number: int, *, trial_id: str = "") -> TrialRecord:
        with self._read() as db:
            return rows.find_trial(db, rows.find_job(db, job_id), number, trial_id)

    def trials(
        self, job_id: str, *, after: int = 0, most: int | None = None, running: bool = False
    ) -> list[TrialRecord]:
        with self._read() as db:
            return rows.trials_of(db, rows.find_job(db, job_id), after, most, running=running)

    def find_trials(
        self, job_id: str, only: TrialFilter, *, after: int = 0, most: int = PAGE, newest: bool = False
    ) -> FoundTrials:
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            return rows.find_trials(db, rows.find_job(db, job_id), only, after, most, newest=newest)

    def count(self, job_id: str) -> int:
        with self._read() as db:
            return rows.count_of(db, rows.find_job(db, job_id))

    # ------------------------------------------------------------------ other facts

    def log(self, job_id: str, since: LogPoint = START) -> Log:
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            return rows.log_after(db, rows.find_job(db, job_id), since)

    def notes(self, job_id: str) -> list[Profiled | Pardoned]:
        with self._read() as db:
            return rows.notes_of(db, rows.find_job(db, job_id).id)

    def profiled(
        self, job_id: str, batch_size: int, gpus: Gpus, *, joules: float, seconds: float, generation: str = ""
    ) -> Profiled:
        with self._write() as db:
            row = take(db, job_id)
            rules.check_generation(rows.to_job(row), generation)
            note = Profiled(
                sequence=row.sequence + 1,
                batch_size=batch_size,
                gpu_model=gpus.label,
                joules=joules,
                seconds=seconds,
                max_watts=gpus.max_watts,
            )
            return rows.add_event(db, row, note)

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        with self._write() as db:
            row = take(db, job_id, removes=True)
            note(db, job_id, Action.PARDONED, {"batch_size": batch_size})
            return rows.add_event(db, row, Pardoned(sequence=row.sequence + 1, batch_size=batch_size))

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> Job:
        with self._write() as db:
            row = take(db, job_id)
            known = rules.check_generation(rows.to_job(row), generation)
            job = rules.excused(known, numbers, utc(db.now()), row.trials)
            if job is not known:
                note(db, job_id, Action.EXCUSED, {"trials": sorted({*job.excused} - {*known.excused})})
            return rows.revise_job(db, row, job)

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        with self._read() as db:
            return profile_rows.find_profile(db, key)

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        with self._read() as db:
            return profile_rows.profiles_of(db, job_id)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        with self._write() as db:
            if (row := rows.take_job_if_any(db, key.job)) is not None:
                current().need(row.id, row.owner)
            profile_rows.put_profile(db, key, profile)
            cache_rows.invalidate_digest(db, key.job)

    # ------------------------------------------------------------------ for a service

    def names(self, contains: str = "", *, after: int = 0, most: int = PAGE) -> Names:
        with self._read() as db:
            return rows.names_of(db, contains, after, most)

    def pulse(self, job_ids: Iterable[str] | None = None) -> dict[str, str]:
        names = None if job_ids is None else list(job_ids)
        with self._read() as db:
            return rows.pulse(db, names)

    def glances(
        self, job_ids: Iterable[str] | None = None, *, briefs: bool = True, hours: bool = False, weeks: bool = False
    ) -> dict[str, Glance]:
        names = None if job_ids is None else list(job_ids)
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            digests = cache_rows.digests_of(db, names, briefs=briefs, hours=hours, weeks=weeks)
            running = cache_rows.running_of(db, names)
            found = rows.pulse(db, names)
        return {name: Glance(pulse, digests.get(name), running.get(name, [])) for name, pulse in found.items()}

    def keep_digests(self, digests: Mapping[str, Digest]) -> None:
        with self._write() as db:
            cache_rows.put_digests(db, dict(digests))

    def snapshot(self, job_id: str) -> Snapshot | None:
        with self._read() as db:
            return cache_rows.snapshot_of(db, job_id)

    def keep_snapshot(self, job_id: str, snapshot: Snapshot) -> None:
        with self._write() as db:
            cache_rows.put_snapshot(db, job_id, snapshot)

    def set_client_gpus(self, job_id: str, gpus: Gpus) -> None:
        with self._write() as db:
            profile_rows.put_place(db, take(db, job_id).id, gpus)

    def client_gpus(self, job_id: str) -> Gpus | None:
        with self._read() as db:
            return profile_rows.find_place(db, rows.find_job(db, job_id).id)

    @property
    def tokens(self) -> Tokens:
        return Tokens(self._database)

    @property
    def audit(self) -> Audit:
        return Audit(self._database)

    @property
    def logs(self) -> Logs:
        return self._logs

    # ------------------------------------------------------------------ export and import

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        dump, wanted = Dump(), None if job_ids is None else list(job_ids)
        with self._database.transaction(TransactionMode.SNAPSHOT) as db:
            found = rows.all_jobs(db) if wanted is None else [rows.find_job(db, one) for one in wanted]
            for row in found:
                try:
                    past = History(rows.revisions_of(db, row), rows.trials_of(db, row), rows.notes_of(db, row.id))
                except InputError as wrong:
                    raise InputError(f"job {row.id!r} cannot be exported. {wrong} Name the jobs to export.") from wrong
                dump.jobs[row.id] = past
            profiles = profile_rows.profiles_of(db)
        dump.profiles = {key: one for key, one in profiles.items() if wanted is None or key.job in wanted}
        return jsonl.write(dump)

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        dump = jsonl.read(lines)
        try:
            with self._write() as db:
                if both := sorted(set(dump.jobs) & set(rows.job_ids(db))):
                    raise rules.already_here(both)
                for past in dump.jobs.values():
                    latest = past.revisions[-1]
                    rows.insert_job(db, past, rows.numbers_used(db, latest.id) or 0)
                    note(db, latest.id, Action.IMPORTED, {"trials": len(past.trials), "owner": latest.owner})
                for key, profile in dump.profiles.items():
                    profile_rows.put_profile(db, key, profile)
        except Conflict as wrong:  # another process has just registered one of them
            raise rules.already_here(sorted(dump.jobs)) from wrong
        return sorted(dump.jobs)

    @property
    def care(self) -> Care:
        from zeus.store.sql.care import Care  # imported late: it loads sqlite3

        return Care(self._database)

    def close(self) -> None:
        self._database.close()

    def _write(self) -> AbstractContextManager[Transaction]:
        return self._database.transaction(TransactionMode.WRITE)

    def _read(self) -> AbstractContextManager[Transaction]:
        return self._database.transaction(TransactionMode.READ)
