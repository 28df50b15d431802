"""A store in memory, for tests, simulations and demos. It ends with its process."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from uuid import uuid4

from zeus.job import Event, Gpus, JobSpec, Kept, Outcome, Pardoned, Profiled, Trial, history, replace
from zeus.profile import PowerProfile, ProfileKey
from zeus.store import json_lines as jsonl
from zeus.store import rules
from zeus.store.api import LEASE_SECONDS, PAGE, START, Decide, Digest, Job, Log, LogPoint, Names, Request, utc
from zeus.store.json_lines import Dump, History
from zeus.store.tokens import Token, Tokens, TokenSession, no_token


class MemoryTokens:
    """`Tokens` in memory."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._sessions: dict[str, TokenSession] = {}
        self._lock = threading.Lock()

    def add(self, token: Token) -> None:
        with self._lock:
            self._tokens[token.id] = token

    def find(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def all(self) -> list[Token]:
        with self._lock:
            return list(self._tokens.values())

    def revoke(self, token_id: str, at: str) -> Token:
        with self._lock:
            if token_id not in self._tokens:
                raise no_token(token_id)
            known = self._tokens[token_id]
            self._tokens[token_id] = replace(known, revoked_at=known.revoked_at or at)
            return self._tokens[token_id]

    def begin(self, session: TokenSession, now: str) -> None:
        with self._lock:
            current = [one for one in self._sessions.values() if one.until > now]
            self._sessions = {one.hash: one for one in [*current, session]}

    def session(self, hash_: str) -> TokenSession | None:
        return self._sessions.get(hash_)

    def end(self, hash_: str) -> None:
        with self._lock:
            self._sessions.pop(hash_, None)


class _Life:
    """A job's facts, with indexes, so that calls do not slow down as the history grows."""

    def __init__(self, past: History, used: int = 0) -> None:
        self.past = past
        self.last = max(used, past.revisions[-1].first - 1, *(kept.trial.number for kept in past.trials), 0)
        self.recurrences = past.recurrences  # the number of the last one
        self._at = {kept.trial.number: index for index, kept in enumerate(past.trials)}
        self.log = history([*(kept.trial for kept in past.trials), *past.notes])  # event n is at n - 1
        self.leased = {kept.trial.number for kept in past.trials if kept.leased_until is not None}
        self.keys: dict[str, int] = {}  # by the key of an ask: the number of the trial it opened
        self.place: Gpus | None = None
        self.tries: defaultdict[int, list[int]] = defaultdict(list)  # numbers of trials by recurrence
        for kept in past.trials:
            self.tries[kept.trial.ask.recurrence].append(kept.trial.number)

    @property
    def job(self) -> Job:
        return self.past.revisions[-1]

    def kept(self, number: int) -> Kept | None:
        index = self._at.get(number)
        return None if index is None else self.past.trials[index]

    def trial(self, number: int) -> Trial:
        return self.past.trials[self._at[number]].trial

    @property
    def running(self) -> list[Kept]:
        return [self.past.trials[self._at[number]] for number in sorted(self.leased)]

    def put(self, kept: Kept) -> None:
        self.past.trials[self._at[kept.trial.number]] = kept

    @property
    def next(self) -> int:
        """The sequence number of the next event."""
        return len(self.log) + 1

    @property
    def pulse(self) -> str:
        return f"{self.job.generation}:{len(self.log)}:{self.job.revision}"

    def revise(self, job: Job, *, void: bool = False) -> Job:
        """Store a revision if it differs from the last. Without `void` it must not change the target of trials."""
        if job == self.job:
            return job
        if not void and (refused := rules.voids(self.job, job, (kept.trial for kept in self.past.trials))) is not None:
            raise refused
        self.past.revisions.append(job)
        return job

    def after(self, since: LogPoint) -> Log:
        """The events after a point. No backup can replace this history, so marks are not needed."""
        return Log(since, self.log[max(0, since.sequence) :], LogPoint(len(self.log)))

    def open(self, kept: Kept) -> None:
        self.last = kept.trial.number
        self.recurrences = max(self.recurrences, kept.trial.ask.recurrence)
        self._at[self.last] = len(self.past.trials)
        self.past.trials.append(kept)
        self.log.append(kept.trial)
        self.leased.add(kept.trial.number)
        self.tries[kept.trial.ask.recurrence].append(kept.trial.number)

    def settle(self, kept: Kept) -> Trial:
        trial = kept.trial
        self.put(replace(kept, leased_until=None))
        self.leased.discard(trial.number)
        self.log.append(trial)
        if trial.ended is not None and trial.lost is not None:  # the outcome replaces what was reported at the loss
            self.log[trial.lost - 1] = replace(trial, ended=None, outcome=None)
        return trial


class MemoryStore:
    """A `Store` in memory, guarded by one lock."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._lock = threading.RLock()
        self._jobs: dict[str, _Life] = {}
        self._profiles: dict[ProfileKey, PowerProfile] = {}
        self._digests: dict[str, Digest] = {}
        self._used: dict[str, int] = {}  # the last trial number of jobs that were forgotten
        self.tokens: Tokens = MemoryTokens()
        self.address: str | None = None

    def register(
        self, spec: JobSpec, *, policy_version: int = 1, revise: bool = True, void: bool = False, revive: bool = True
    ) -> Job:
        with self._lock:
            now = utc(self._wall())
            if spec.id not in self._jobs:
                if spec.id in self._used and not revive:
                    raise rules.removed(spec.id)
                used = self._used.get(spec.id, 0)
                job = rules.created(spec, policy_version, now, lambda: secrets.randbelow(2**31), uuid4().hex, used)
                self._jobs[job.id] = _Life(History([job]))
                return job
            known = self._jobs[spec.id]
            job = rules.revised(known.job, spec, policy_version, now)
            if job != known.job and not revise:
                raise rules.differs(known.job, job)
            return known.revise(job, void=void)

    def revise(self, job_id: str, change: Callable[[Job], tuple[JobSpec, int]], *, void: bool = False) -> Job:
        with self._lock:
            known = self._known(job_id)
            return known.revise(rules.revised(known.job, *change(known.job), utc(self._wall())), void=void)

    def job(self, job_id: str) -> Job:
        with self._lock:
            return self._known(job_id).job

    def jobs(self) -> list[Job]:
        with self._lock:
            return [known.job for _, known in sorted(self._jobs.items())]

    def revisions(self, job_id: str) -> list[Job]:
        with self._lock:
            return list(self._known(job_id).past.revisions)

    def ask(
        self,
        job_id: str,
        request: Request,
        decide: Decide,
        *,
        lease: float = LEASE_SECONDS,
        key: str | None = None,
    ) -> Trial:
        with self._lock:
            self.expire(job_id)
            known, now = self._known(job_id), self._wall()
            if key is not None and key in known.keys:
                return known.trial(known.keys[key])
            if request.resume:
                request = rules.resumed(request, [one.trial for one in known.past.trials[-rules.LATELY :]])
            tries = [known.trial(number) for number in known.tries.get(request.recurrence or 0, [])]
            ask = rules.next_ask(known.job.spec, request, known.last + 1, known.recurrences, tries, uuid4().hex)
            decision = decide(known.job, ask, known.after)
            trial = Trial(ask=ask, decision=decision, asked=known.next)
            known.open(Kept(trial=trial, asked_at=utc(now), changed_at=utc(now), leased_until=utc(now + lease)))
            if key is not None:
                known.keys[key] = trial.number
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
        with self._lock:
            so_far = rules.lost(so_far)
            known, kept = self._kept(job_id, number, trial_id)
            if kept.leased_until is not None:
                until = utc(self._wall() + lease)
                known.put(replace(kept, leased_until=until, so_far=so_far or kept.so_far))
            return kept.trial

    def tell(self, job_id: str, number: int, outcome: Outcome, *, trial_id: str = "") -> Trial:
        with self._lock:
            known, kept = self._kept(job_id, number, trial_id)
            trial = rules.told(job_id, kept.trial, outcome, known.next)
            if trial is not kept.trial:
                known.settle(replace(kept, trial=trial, changed_at=utc(self._wall())))
            return trial

    def expire(self, job_id: str) -> list[Trial]:
        with self._lock:
            known, now = self._known(job_id), utc(self._wall())
            lost: list[Trial] = []
            for number in sorted(known.leased):
                kept = known.kept(number)
                if kept is not None and kept.leased_until is not None and kept.leased_until <= now:
                    trial = kept.trial.lose(known.next, kept.so_far)
                    lost.append(known.settle(replace(kept, trial=trial, changed_at=now)))
            return lost

    def facts(self, job_id: str, since: int = 0) -> list[Event]:
        with self._lock:
            return self._known(job_id).log[max(0, since) :]

    def log(self, job_id: str, since: LogPoint = START) -> Log:
        with self._lock:
            return self._known(job_id).after(since)

    def trial(self, job_id: str, number: int, *, trial_id: str = "") -> Kept:
        with self._lock:
            return self._kept(job_id, number, trial_id)[1]

    def trials(self, job_id: str, *, after: int = 0, most: int | None = None, running: bool = False) -> list[Kept]:
        with self._lock:
            known = self._known(job_id)
            found = known.running if running else known.past.trials
            return found[after : None if most is None else after + most]

    def count(self, job_id: str) -> int:
        with self._lock:
            return len(self._known(job_id).past.trials)

    def notes(self, job_id: str) -> list[Profiled | Pardoned]:
        with self._lock:
            return list(self._known(job_id).past.notes)

    def profiled(
        self, job_id: str, batch_size: int, gpus: Gpus, *, joules: float, seconds: float, life: str = ""
    ) -> Profiled:
        with self._lock:
            known = self._known(job_id)
            rules.same_life(known.job, life)
            note = Profiled(
                sequence=known.next,
                batch_size=batch_size,
                gpu_model=gpus.label,
                joules=joules,
                seconds=seconds,
                max_watts=gpus.max_watts,
            )
            known.past.notes.append(note)
            known.log.append(note)
            return note

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        with self._lock:
            known = self._known(job_id)
            note = Pardoned(sequence=known.next, batch_size=batch_size)
            known.past.notes.append(note)
            known.log.append(note)
            return note

    def excuse(self, job_id: str, numbers: Iterable[int], *, life: str = "") -> Job:
        with self._lock:
            known = self._known(job_id)
            job = rules.same_life(known.job, life)
            return known.revise(rules.excused(job, numbers, utc(self._wall()), known.last))

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        with self._lock:
            return self._profiles.get(key)

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        with self._lock:
            return {key: one for key, one in self._profiles.items() if key.job == job_id}

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        with self._lock:
            self._profiles[key] = profile

    def names(self, contains: str = "", *, after: int = 0, most: int = PAGE) -> Names:
        with self._lock:
            found = sorted(name for name in self._jobs if contains.lower() in name.lower())
            return Names(len(found), found[after : after + most])

    def pulse(self, job_ids: Iterable[str] | None = None) -> dict[str, str]:
        wanted = None if job_ids is None else set(job_ids)
        with self._lock:
            return {name: one.pulse for name, one in self._jobs.items() if wanted is None or name in wanted}

    def digests(self, job_ids: Iterable[str]) -> dict[str, Digest]:
        with self._lock:
            return {name: self._digests[name] for name in job_ids if name in self._digests}

    def keep_digests(self, digests: Mapping[str, Digest]) -> None:
        with self._lock:
            self._digests.update(digests)

    def settle(self, job_id: str, gpus: Gpus) -> None:
        with self._lock:
            self._known(job_id).place = gpus

    def settled(self, job_id: str) -> Gpus | None:
        with self._lock:
            return self._known(job_id).place

    def forget(self, job_id: str) -> None:
        with self._lock:
            self._used[job_id] = self._known(job_id).last
            del self._jobs[job_id]
            self._profiles = {key: kept for key, kept in self._profiles.items() if key.job != job_id}
            self._digests.pop(job_id, None)

    def restart(self, job_id: str, *, policy_version: int = 1, pulse: str | None = None) -> Job:
        with self._lock:
            known, now = self._known(job_id), utc(self._wall())
            life, last, found = uuid4().hex, known.last, known.pulse
            job = rules.begun_again(known.job, policy_version, now, life, last=last, pulse=found, expected=pulse)
            self.forget(job_id)
            self._jobs[job_id] = _Life(History([job]))
            return job

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        with self._lock:
            wanted = {job_id: self._known(job_id).past for job_id in (self._jobs if job_ids is None else job_ids)}
            profiles = {key: one for key, one in self._profiles.items() if job_ids is None or key.job in wanted}
            return jsonl.write(Dump(wanted, profiles))

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        dump = jsonl.read(lines)
        with self._lock:
            if here := sorted(set(dump.jobs) & set(self._jobs)):
                raise rules.already_here(here)
            self._jobs.update({job_id: _Life(past, self._used.get(job_id, 0)) for job_id, past in dump.jobs.items()})
            self._profiles.update(dump.profiles)
        return sorted(dump.jobs)

    def close(self) -> None:
        """There is nothing to close."""

    def _known(self, job_id: str) -> _Life:
        if job_id not in self._jobs:
            raise rules.no_job(job_id, sorted(self._jobs))
        return self._jobs[job_id]

    def _kept(self, job_id: str, number: int, trial_id: str = "") -> tuple[_Life, Kept]:
        known = self._known(job_id)
        kept = known.kept(number)
        if kept is None:
            raise rules.no_trial(job_id, number, known.last)
        rules.meant(job_id, kept.trial, trial_id)
        return known, kept
