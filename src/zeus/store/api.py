"""Where the facts are kept: jobs, their trials and their power profiles. What every store promises.

    register ─▶ Job            ask ─▶ Trial (OPEN, leased) ──tell──▶ ended
                                          │  ▲ renew      lapses ─▶ LOST ──late tell──▶ ended

**Facts only.** No belief is stored. Whatever a policy knows, it folds from `facts`.

**One order.** Asks, tells, losses, profiled costs and pardons of a job take its sequence numbers 1, 2, 3, ...: each
is used once and none is left out. Trials of a job are numbered likewise, and no number is ever given twice: the first
trial after a reset, or of a job that was forgotten and registered anew, follows the last one of the life before. So a
late tell of an old life finds no trial, never another one. Where two trials have one number all the same, in two stores
or in a backup that was restored, `Ask.id` tells them apart: whoever speaks of a trial gives it.

**One clock.** Leases are by the clock of the store: on Postgres the server's, whatever the clients' clocks say.

**Caches by content.** A place in a job's history is known by a `LogPoint`. One that a store does not know, as it was
restored from a backup, is of another history, and whoever folded up to there begins again.

**All or nothing.** Each verb happens as a whole or not at all, whatever is killed meanwhile, and has happened for
every process once it returns. Verbs on one job happen one after the other, and nobody has to clean up.

**Deciding is inside.** `ask` calls `decide` while it holds the job, so that no two asks decide on the same past.
`decide` sees committed facts alone; if it raises, no trial is opened. It must not call the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, TypeAlias

from zeus.errors import InputError
from zeus.job import (
    MAX_TRIES,
    Ask,
    Decision,
    Event,
    Gpus,
    JobSpec,
    Kept,
    Outcome,
    Pardoned,
    Profiled,
    Target,
    Trial,
)
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.tokens import Tokens

LEASE_SECONDS = 600.0  # renewed every two minutes, so that four renewals may fail


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A registered job as its latest revision has it."""

    spec: JobSpec  # with its id and its seed filled in
    policy_version: int  # of `spec.policy`: what the job is folded with
    revision: int = 1
    at: str  # when this revision was made
    generation: str  # changes when a job is forgotten or imported, so that a cached fold of another life is not used
    excused: tuple[int, ...] = ()  # trials whose crash, with no epoch done, is held against no size
    first: int = 1  # the number of its first trial: lower ones were given in a life before

    @property
    def id(self) -> str:
        """What it is found by."""
        return self.spec.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the asker knows; the store adds the numbers and makes an `Ask` of it."""

    gpus: Gpus
    recurrence: int | None = None  # None: a new one; a number: another try of that one
    max_tries: int = MAX_TRIES
    target: Target | None = None  # that it ran for, where that is known; None: the job's
    resume: bool = False  # instead of a new one, another try of a recurrence whose tries all failed, if there is one

    def __post_init__(self) -> None:
        if self.resume and self.recurrence is not None:
            raise InputError(f"recurrence={self.recurrence}: name one, or resume whichever is unfinished.")
        if self.max_tries < 1:
            raise InputError(f"max_tries={self.max_tries!r}: give a whole number of at least 1.")


class LogPoint(NamedTuple):
    """A place in a job's history: what happened up to a sequence number, and a mark that no other history has there."""

    sequence: int = 0
    mark: str = ""


class Log(NamedTuple):
    """What happened between two points."""

    begin: LogPoint
    events: list[Event]
    end: LogPoint


Facts: TypeAlias = Callable[[LogPoint], Log]  # from there on, or from the start where that point is of another history
Decide: TypeAlias = Callable[[Job, Ask, Facts], Decision]
START = LogPoint()


class Store(Protocol):
    """The verbs.

    InputError: what was given cannot be used, or is not known; nothing was changed. StoreError: the store did not
    answer; nothing was changed, unless it says that this is not known.
    """

    @property
    def address(self) -> str | None:
        """By which other processes find it, with no secret in it; None: they cannot."""

    def register(
        self, spec: JobSpec, *, policy_version: int = 1, revise: bool = True, void: bool = False, revive: bool = True
    ) -> Job:
        """The job of this id, made if there is none.

        A seed that is None is drawn once and kept. A known job whose spec differs gets a new revision: its history
        goes on. While the policy keeps its name, the job keeps the version it has been folded with. Without `revise` a
        known job stays as it is, and a spec that differs from it is AlreadyDone.

        A trial counts for the target that it was asked for. A revision to another one, after which trials would not
        count, is AlreadyDone unless `void` asks for it; with the target back they count again.

        Without `revive` a job that was forgotten is not made again: NotKnown.
        """

    def revise(self, job_id: str, change: Callable[[Job], tuple[JobSpec, int]], *, void: bool = False) -> Job:
        """The job after `change`, which says spec and policy version.

        It is called while the job is held, so that no two changes overwrite each other. If it raises, nothing is
        changed. It must not call the store. What is revised is as `register` has it, as is `void`.
        """

    def job(self, job_id: str) -> Job:
        """Its latest revision."""

    def jobs(self) -> list[Job]:
        """All, by id."""

    def revisions(self, job_id: str) -> list[Job]:
        """All revisions of a job, the first one first."""

    def ask(
        self,
        job_id: str,
        request: Request,
        decide: Decide,
        *,
        lease: float = LEASE_SECONDS,
        key: str | None = None,
    ) -> Trial:
        """Open a trial with the batch size that `decide(job, ask, facts)` names; lapsed leases are expired before.

        A recurrence that has converged or used up its tries is not asked for again: AlreadyDone. A `key` that has
        opened a trial of this job before gets that trial, as it stands, and opens no other: an ask may be repeated
        until its answer is heard.
        """

    def renew(
        self,
        job_id: str,
        number: int,
        so_far: Outcome | None = None,
        *,
        trial_id: str = "",
        lease: float = LEASE_SECONDS,
    ) -> Trial:
        """An open trial holds from now on for so long again; what it `so_far` used (ending LOST) outlives its loss.

        One that is no longer open comes back as it stands and is not reopened; it may still tell. With a `trial_id`
        that is not the trial's: NotKnown.
        """

    def tell(self, job_id: str, number: int, outcome: Outcome, *, trial_id: str = "") -> Trial:
        """How a trial ended. An open or a lost one ends now, however late.

        The same outcome told again changes nothing, so that a tell may be repeated until it is heard. Another
        outcome for a trial that has ended is an InputError: the first one may have been learnt from. Ending LOST gives
        an open trial up before its lease lapses, and changes nothing about any other. `trial_id` is as in `renew`.
        """

    def expire(self, job_id: str) -> list[Trial]:
        """The trials that are LOST as of now, because their leases lapsed; `ask` does this by itself."""

    def facts(self, job_id: str, since: int = 0) -> list[Event]:
        """What happened after this sequence number, in order, ready to be observed; its cost is that of the answer."""

    def log(self, job_id: str, since: LogPoint = START) -> Log:
        """The same for those who keep what they folded: from the start where `since` is of another history."""

    def trial(self, job_id: str, number: int, *, trial_id: str = "") -> Kept:
        """One trial as it stands; `trial_id` is as in `renew`."""

    def trials(self, job_id: str, *, after: int = 0, most: int | None = None) -> list[Kept]:
        """Each trial as it stands, by number: those above `after`, at most so many; its cost is that of the answer."""

    def count(self, job_id: str) -> int:
        """How many trials it has."""

    def notes(self, job_id: str) -> list[Profiled | Pardoned]:
        """The events that are no trial's, in order."""

    def profiled(
        self, job_id: str, batch_size: int, gpus: Gpus, *, joules: float, seconds: float, life: str = ""
    ) -> Profiled:
        """What an epoch of a size uses became known on these GPUs: an event of the job.

        Of a job that is not in this `life` (its generation) any more: NotKnown.
        """

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        """A size that crashed may be offered again: an event of the job."""

    def excuse(self, job_id: str, numbers: Iterable[int], *, life: str = "") -> Job:
        """Crashes of these trials, if they did no epoch, were not their sizes': a revision, folded without them.

        `life` is as in `profiled`.
        """

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key; the job need not be registered."""

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        """All profiles of a job."""

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Keep it in place of what was kept under its key."""

    def pulse(self) -> dict[str, str]:
        """For each job a text that changes whenever its facts or its terms do; cheap, however long the histories."""

    def settle(self, job_id: str, gpus: Gpus) -> None:
        """Remember where a job runs, for clients that say it only once."""

    def settled(self, job_id: str) -> Gpus | None:
        """What was settled last."""

    @property
    def tokens(self) -> Tokens:
        """Who may speak to a service over this store."""

    def forget(self, job_id: str) -> None:
        """Remove a job with all its facts and profiles."""

    def restart(self, job_id: str, *, policy_version: int = 1, pulse: str | None = None) -> Job:
        """Another life of a job as it is registered, without the facts and profiles of this one, in one step.

        With a `pulse`, only while that is still the job's: whatever else has happened was not seen by whoever exported
        it, and would be lost. It is AlreadyDone then, and nothing is removed.
        """

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        """All facts of these jobs, or of all, as they were at one moment: lines of JSON."""

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """Take in what `export` gave, all or nothing; the ids of the jobs. A job that is already here: InputError."""

    def close(self) -> None:
        """Let go of connections; what was kept stays."""


def utc(wall: float) -> str:
    """Seconds since 1970 as ISO-8601, always of one length, so that texts sort as times do.

    >>> utc(1_700_000_000.25)
    '2023-11-14T22:13:20.250000+00:00'
    """
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds")
