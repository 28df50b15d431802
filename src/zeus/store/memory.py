"""A store that lives as long as its process: for tests, simulations and the demo of an idea."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from uuid import uuid4

from zeus.job import Event, JobSpec, Outcome, Pardoned, Profiled, Trial, history
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import lines as jsonl
from zeus.store import rules
from zeus.store.api import LEASE_SECONDS, Decide, Job, Kept, Request, utc
from zeus.store.lines import Dump, History


class MemoryStore:
    """A `Store` behind one lock."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.RLock()
        self._jobs: dict[str, History] = {}
        self._profiles: dict[ProfileKey, PowerProfile] = {}

    def register(self, spec: JobSpec, *, policy_version: int = 1) -> Job:
        """Made, found or revised."""
        with self._lock:
            now = utc(self._wall())
            if spec.id not in self._jobs:
                job = rules.created(spec, policy_version, now, lambda: secrets.randbelow(2**31), uuid4().hex)
                self._jobs[job.id] = History([job])
                return job
            known = self._jobs[spec.id]
            job = rules.revised(known.revisions[-1], spec, policy_version, now, known.sequence)
            if job != known.revisions[-1]:
                known.revisions.append(job)
            return job

    def job(self, job_id: str) -> Job:
        """Its latest revision."""
        with self._lock:
            return self._known(job_id).revisions[-1]

    def jobs(self) -> list[Job]:
        """All, by id."""
        with self._lock:
            return [known.revisions[-1] for _, known in sorted(self._jobs.items())]

    def revisions(self, job_id: str) -> list[Job]:
        """The first one first."""
        with self._lock:
            return list(self._known(job_id).revisions)

    def ask(self, job_id: str, request: Request, decide: Decide, *, lease: float = LEASE_SECONDS) -> Trial:
        """Expire, decide, open."""
        with self._lock:
            self.expire(job_id)
            known, now = self._known(job_id), self._wall()
            tries = [kept.trial for kept in known.trials if kept.trial.ask.recurrence == request.recurrence]
            ask = rules.next_ask(job_id, request, len(known.trials) + 1, known.recurrences, tries)
            decision = decide(known.revisions[-1], ask, lambda since: self.facts(job_id, since))
            trial = Trial(ask=ask, decision=decision, asked=known.sequence + 1)
            known.trials.append(
                Kept(trial=trial, asked_at=utc(now), changed_at=utc(now), leased_until=utc(now + lease))
            )
            return trial

    def renew(
        self, job_id: str, number: int, so_far: Outcome | None = None, *, lease: float = LEASE_SECONDS
    ) -> Trial:
        """Hold on to an open trial."""
        with self._lock:
            so_far = rules.lost(so_far)
            known, kept = self._kept(job_id, number)
            if kept.leased_until is not None:
                until = utc(self._wall() + lease)
                known.trials[number - 1] = replace(kept, leased_until=until, so_far=so_far or kept.so_far)
            return kept.trial

    def tell(self, job_id: str, number: int, outcome: Outcome) -> Trial:
        """End a trial, once."""
        with self._lock:
            known, kept = self._kept(job_id, number)
            trial = rules.told(job_id, kept.trial, outcome, known.sequence + 1)
            if trial is not kept.trial:
                self._change(known, kept, trial)
            return trial

    def expire(self, job_id: str) -> list[Trial]:
        """Lose what has lapsed."""
        with self._lock:
            known, now = self._known(job_id), utc(self._wall())
            lapsed = [kept for kept in known.trials if kept.leased_until is not None and kept.leased_until <= now]
            return [self._change(known, kept, kept.trial.lose(known.sequence + 1, kept.so_far)) for kept in lapsed]

    def facts(self, job_id: str, since: int = 0) -> list[Event]:
        """Events after this sequence number."""
        with self._lock:
            known = self._known(job_id)
            recent: list[Event] = [kept.trial for kept in known.trials if kept.trial.sequence > since]
            return [event for event in history([*recent, *known.notes]) if event.sequence > since]

    def trials(self, job_id: str) -> list[Kept]:
        """By number."""
        with self._lock:
            return list(self._known(job_id).trials)

    def profiled(self, job_id: str, batch_size: int, gpu_model: str, epoch_cost: float) -> Profiled:
        """Note an epoch's cost."""
        with self._lock:
            known = self._known(job_id)
            note = Profiled(
                sequence=known.sequence + 1, batch_size=batch_size, gpu_model=gpu_model, epoch_cost=epoch_cost
            )
            known.notes.append(note)
            return note

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        """Note a pardon."""
        with self._lock:
            known = self._known(job_id)
            note = Pardoned(sequence=known.sequence + 1, batch_size=batch_size)
            known.notes.append(note)
            return note

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        """Of exactly this key."""
        with self._lock:
            return self._profiles.get(key)

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """In place of the last."""
        with self._lock:
            self._profiles[key] = profile

    def forget(self, job_id: str) -> None:
        """Remove a job and its profiles."""
        with self._lock:
            self._known(job_id)
            del self._jobs[job_id]
            self._profiles = {key: kept for key, kept in self._profiles.items() if key.job != job_id}

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        """As lines of JSON."""
        with self._lock:
            if job_ids is None:
                return jsonl.write(Dump(self._jobs, self._profiles))
            wanted = {job_id: self._known(job_id) for job_id in job_ids}
            return jsonl.write(Dump(wanted, {key: kept for key, kept in self._profiles.items() if key.job in wanted}))

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """All or nothing."""
        dump = jsonl.read(lines)
        with self._lock:
            if here := sorted(set(dump.jobs) & set(self._jobs)):
                raise rules.already_here(here)
            self._jobs.update(dump.jobs)
            self._profiles.update(dump.profiles)
        return sorted(dump.jobs)

    def close(self) -> None:
        """Nothing to let go of."""

    def _known(self, job_id: str) -> History:
        if job_id not in self._jobs:
            raise rules.no_job(job_id, sorted(self._jobs))
        return self._jobs[job_id]

    def _kept(self, job_id: str, number: int) -> tuple[History, Kept]:
        known = self._known(job_id)
        if not 1 <= number <= len(known.trials):
            raise rules.no_trial(job_id, number, len(known.trials))
        return known, known.trials[number - 1]

    def _change(self, known: History, kept: Kept, trial: Trial) -> Trial:
        changed = replace(kept, trial=trial, changed_at=utc(self._wall()), leased_until=None)
        known.trials[trial.number - 1] = changed
        return trial
