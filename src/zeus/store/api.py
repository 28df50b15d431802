"""The store keeps the facts: jobs, their trials and their power profiles. Every store promises the following.

    register ─▶ Job            ask ─▶ Trial (OPEN, leased) ──tell──▶ ended
                                          │  ▲ renew      lapses ─▶ LOST ──late tell──▶ ended

**Only facts.** No belief is stored. A policy folds its state from `log`. Digests and snapshots are caches: they may
be lost at any time, and no export has them.

**One order.** Asks, tells, losses, profiled costs and pardons of a job have the sequence numbers 1, 2, 3, ... without
gaps or repeats.

**Unique trial numbers.** A trial number of a job is never used twice. A job that is reset, or forgotten and registered
again, begins a new generation, whose numbers continue those of the one before. So a late tell from an old generation
finds no trial, rather than a wrong one. Two stores, or a store and its restored backup, may still hold different trials
of one number. `Ask.id` tells them apart, so callers should pass it.

**One clock.** Leases use the clock of the store. For Postgres that is the server's clock, not the clients'.

**Safe caches.** A `LogPoint` identifies a point in a job's history. After a backup is restored, the store may not know
a point. Then a caller that folded up to this point must start again.

**All or nothing.** Each call happens as a whole or not at all, even if a process is killed. When it returns, all
processes see its effect. Calls on one job happen one after another. No cleaning up is ever needed.

**Decisions inside.** `ask` calls `decide` while it holds the job, so no two asks decide on the same past. `decide` sees
only committed facts. If it raises, no trial is opened. It must not call the store.

**One actor.** Each change is somebody's: by default that of the process's user, in a service that of whoever sent the
request (`zeus.store.actor`). A job may have an owner. Nobody else may change it then, besides the owner's team and
administrators: a call that would change it raises Forbidden. Whoever registers a job through a service owns it. What
was done to a job is written to the audit together with the change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol, TypeAlias

from msgspec import Meta

from zeus.errors import InputError
from zeus.job import (
    MAX_TRIES,
    Ask,
    Checked,
    Decision,
    Ending,
    Event,
    Gpus,
    JobSpec,
    Origin,
    Outcome,
    Pardoned,
    Profiled,
    Target,
    Trial,
    TrialRecord,
)
from zeus.job.value import Whole
from zeus.profile import PowerProfile, ProfileKey

if TYPE_CHECKING:
    from zeus.store.audit import Audit
    from zeus.store.sql.care import Care
    from zeus.store.tokens import Tokens
    from zeus.store.trial_logs import Logs

OWNER_LENGTH = 401  # of a team, a slash and a name, at most
OwnerName = Annotated[str, Meta(max_length=OWNER_LENGTH)]

PAGE = 100  # names of jobs at once, if nobody says how many
LEASE_SECONDS = 600.0  # renewed every two minutes, so four renewals may fail


class Job(Checked, frozen=True, kw_only=True):
    """A revision of a registered job."""

    spec: JobSpec  # with its id and seed filled in
    policy_version: Whole  # the version of `spec.policy` that the job's state is folded with
    revision: Whole = 1
    at: str  # when this revision was made
    generation: str  # a random name; it changes when the job is reset, forgotten or imported, so no caches are mixed up
    excused: tuple[Whole, ...] = ()  # trials that crashed before their first epoch, for which no size is blamed
    first: Whole = 1  # the number of its first trial; earlier generations used the lower ones
    paused_by: OwnerName = ""  # who paused it: its trials run as before Zeus; empty: it is not paused
    owner: OwnerName = ""  # who may change it, besides administrators; empty: everybody

    @property
    def id(self) -> str:
        return self.spec.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the caller of `ask` knows. The store adds the numbers to make an `Ask`."""

    gpus: Gpus
    recurrence: int | None = None  # None: a new one; a number: another trial of that one
    max_tries: int = MAX_TRIES
    target: Target | None = None  # the target it runs for; None: the job's
    resume: bool = False  # continue an unfinished recurrence whose trials all failed, if there is one
    origin: Origin | None = None  # who asks, and where

    def __post_init__(self) -> None:
        if self.resume and self.recurrence is not None:
            raise InputError(f"recurrence={self.recurrence}: give either a recurrence or resume=True, not both.")
        if self.max_tries < 1:
            raise InputError(f"max_tries={self.max_tries!r}: give a whole number of at least 1.")


class LogPoint(NamedTuple):
    """A point in a job's history: a sequence number, and a random mark that differs in any other history."""

    sequence: int = 0
    mark: str = ""


class Log(NamedTuple):
    """The events between two points."""

    begin: LogPoint
    events: list[Event]
    end: LogPoint


class Past(NamedTuple):
    """A job and its facts, as of one moment."""

    job: Job
    trials: list[TrialRecord]
    notes: list[Profiled | Pardoned]
    profiles: dict[ProfileKey, PowerProfile]


class TrialFilter(NamedTuple):
    """Which trials of a job are meant. None: any."""

    ending: Ending | None = None
    batch_size: int | None = None
    recurrence: int | None = None


class FoundTrials(NamedTuple):
    """Some of the trials that match a filter, and how many match."""

    total: int
    page: list[TrialRecord]


class Names(NamedTuple):
    """Some names of jobs, and how many there are in all."""

    total: int
    page: list[str]


class Snapshot(NamedTuple):
    """The state of a job's policy at a point of its history, as bytes, and a stamp that says what it depends on."""

    stamp: str
    point: LogPoint
    state: bytes


class Digest(NamedTuple):
    """Texts about a job that took long to compute, and a stamp that says what they were computed from."""

    stamp: str
    totals: str  # what it adds to the totals of all jobs
    brief: str = ""  # the row of a list; empty: not read
    hours: str = ""  # its energy by hour, for rates that differ by the hour; empty: not read
    weeks: str = ""  # what it used and saved by week; empty: not read


class Glance(NamedTuple):
    """What a list or a sum of many jobs needs of one."""

    pulse: str
    digest: Digest | None
    running: list[TrialRecord]  # its open trials


Facts: TypeAlias = Callable[[LogPoint], Log]  # the events after this point, or all if it is of another history
Decide: TypeAlias = Callable[[Job, Ask, Facts], Decision]
START = LogPoint()


class Store(Protocol):
    """What can be done with a store.

    Each call may raise InputError (an argument cannot be used or is unknown; nothing was changed) or StoreError (the
    store did not answer; nothing was changed, unless the message says otherwise).
    """

    @property
    def address(self) -> str | None:
        """The address for other processes, without secrets; None if they cannot open it."""

    def register(
        self, spec: JobSpec, *, policy_version: int = 1, revise: bool = True, void: bool = False, revive: bool = True
    ) -> Job:
        """Create the job, or revise it if it is registered with a different spec.

        A seed of None is drawn once and stored. After a revision the history continues. The job keeps its policy
        version as long as the policy has the same name.

        Args:
            spec: The job.
            policy_version: The version of its policy, for a new job or a new policy.
            revise: False: raise AlreadyDone if the spec differs, and change nothing.
            void: Allow a new target although trials ran for the current one. They do not count until the job gets that
                target back. Also allow another `include`: costs with and without the CPU are not compared. Without
                `void` this raises AlreadyDone.
            revive: False: raise NotKnown if the job was forgotten.
        """

    def revise(self, job_id: str, change: Callable[[Job], tuple[JobSpec, int]], *, void: bool = False) -> Job:
        """Revise a job. `change` returns its new spec and policy version.

        `change` is called while the job is held, so no two changes overwrite each other. If it raises, nothing is
        changed. It must not call the store. Revisions and `void` are as in `register`.
        """

    def pause(self, job_id: str, *, paused: bool = True) -> Job:
        """Pause a job, or resume it: a revision. The trials of a paused job run as before Zeus."""

    def own(self, job_id: str, owner: str) -> Job:
        """Say whose job it is: a name, or a team and a name with a slash between them; empty: nobody's."""

    def job(self, job_id: str) -> Job:
        """The latest revision of a job."""

    def ask(
        self,
        job_id: str,
        request: Request,
        decide: Decide,
        *,
        lease: float = LEASE_SECONDS,
        key: str | None = None,
    ) -> Trial:
        """Open a trial with the batch size that `decide(job, ask, facts)` returns. Lapsed leases are expired first.

        A `key` makes it safe to repeat an ask: if it has opened a trial of this job before, that trial is returned.
        Raises AlreadyDone if the recurrence has converged or used up its trials.
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
        """Renew the lease of an open trial for `lease` seconds from now.

        `so_far` (with ending LOST) is what it has used; it is kept if the trial is lost. A trial that is no longer open
        is returned unchanged, and may still be told. Raises NotKnown if `trial_id` is not the trial's id.
        """

    def tell(self, job_id: str, number: int, outcome: Outcome, *, trial_id: str = "") -> Trial:
        """Store how an open or lost trial ended.

        A tell may be repeated: the same outcome again changes nothing. A different outcome for a trial that has ended
        is AlreadyDone, because a policy may have learnt from the first. Ending LOST gives up an open trial before its
        lease lapses, and changes no other trial. `trial_id` is as in `renew`.
        """

    def expire(self, job_id: str) -> list[Trial]:
        """Mark the trials LOST whose leases have lapsed, and return them. `ask` does this too."""

    def log(self, job_id: str, since: LogPoint = START) -> Log:
        """The events after this point in order, or all events if the point is of another history.

        The time taken depends only on their number.
        """

    def past(self, job_id: str) -> Past:
        """The latest revision of a job, and all of its facts, read at one moment."""

    def trial(self, job_id: str, number: int, *, trial_id: str = "") -> TrialRecord:
        """One trial. `trial_id` is as in `renew`."""

    def trials(
        self, job_id: str, *, after: int = 0, most: int | None = None, running: bool = False
    ) -> list[TrialRecord]:
        """The trials by number, without the first `after` of them, at most `most`.

        With `running`: only the open trials. The time taken depends only on their number.
        """

    def find_trials(
        self, job_id: str, only: TrialFilter, *, after: int = 0, most: int = PAGE, newest: bool = False
    ) -> FoundTrials:
        """The trials that match by number, or the newest first; without the first `after` of them, at most `most`."""

    def count(self, job_id: str) -> int:
        """The number of trials of a job."""

    def notes(self, job_id: str) -> list[Profiled | Pardoned]:
        """The events that do not belong to a trial, in order."""

    def profiled(
        self, job_id: str, batch_size: int, gpus: Gpus, *, joules: float, seconds: float, generation: str = ""
    ) -> Profiled:
        """Store what an epoch of a size uses on these GPUs, as an event of the job.

        Raises NotKnown if the job is no longer in this `generation`.
        """

    def pardon(self, job_id: str, batch_size: int) -> Pardoned:
        """Allow a size that crashed to be offered again, as an event of the job."""

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> Job:
        """Do not blame the batch sizes for crashes of these trials before their first epoch; this is a revision.

        `generation` is as in `profiled`.
        """

    def get_profile(self, key: ProfileKey) -> PowerProfile | None:
        """The profile of exactly this key, or None. The job need not be registered."""

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        """All profiles of a job."""

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store a profile. It replaces any that was stored under this key."""

    def names(self, contains: str = "", *, after: int = 0, most: int = PAGE) -> Names:
        """The names of jobs in their order, without the first `after` of them, at most `most`.

        With `contains`: only names that contain this text, whether in capitals or not.
        """

    def pulse(self, job_ids: Iterable[str] | None = None) -> dict[str, str]:
        """For each job, a text that changes whenever its facts or its spec do. Fast for any length of history.

        With `job_ids`: only for those of them that are registered.
        """

    def glances(
        self, job_ids: Iterable[str] | None = None, *, briefs: bool = True, hours: bool = False, weeks: bool = False
    ) -> dict[str, Glance]:
        """The pulse of these jobs, or of all jobs, what `keep_digests` stored last, and the trials that run.

        All is read at one moment. Jobs that are not registered are left out. Without `briefs`, `hours` or `weeks`,
        these parts of the digests are not read.
        """

    def keep_digests(self, digests: Mapping[str, Digest]) -> None:
        """Store a digest for each of these jobs, in place of the one before. A new profile makes its stamp invalid."""

    def snapshot(self, job_id: str) -> Snapshot | None:
        """What `keep_snapshot` stored last for this job, if it is still there."""

    def keep_snapshot(self, job_id: str, snapshot: Snapshot) -> None:
        """Store a snapshot of a job in place of the one before."""

    def set_client_gpus(self, job_id: str, gpus: Gpus) -> None:
        """Store the GPUs of a job, for clients that give them only once."""

    def client_gpus(self, job_id: str) -> Gpus | None:
        """The GPUs that `set_client_gpus` stored last, or None."""

    @property
    def tokens(self) -> Tokens:
        """The tokens of a service that uses this store."""

    @property
    def audit(self) -> Audit:
        """Who has changed which job."""

    @property
    def logs(self) -> Logs:
        """The ends of trials' logs."""

    def forget(self, job_id: str) -> None:
        """Remove a job with all its facts and profiles."""

    def restart(self, job_id: str, *, policy_version: int = 1, pulse: str | None = None) -> Job:
        """Begin a new generation of a job in one step, with its spec but without its facts and profiles.

        With a `pulse`, raises AlreadyDone and removes nothing if the job has changed since that pulse. So nothing is
        lost that an export before did not see.
        """

    def export(self, job_ids: Iterable[str] | None = None) -> list[str]:
        """All facts of these jobs, or of all jobs, as lines of JSON. All are read at one moment."""

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """Import what `export` wrote, all or nothing, and return the ids of the jobs.

        Raises AlreadyDone if one of the jobs is already in this store.
        """

    @property
    def care(self) -> Care:
        """Backup, restoration, and how the store is."""

    def close(self) -> None:
        """Close the connections."""


def utc(wall: float) -> str:
    """Seconds since 1970 as ISO-8601 text of fixed length, so that texts sort as times do.

    >>> utc(1_700_000_000.25)
    '2023-11-14T22:13:20.250000+00:00'
    """
    return datetime.fromtimestamp(wall, UTC).isoformat(timespec="microseconds")
