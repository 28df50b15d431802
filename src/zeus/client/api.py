"""The port to jobs, wherever they are kept: what can be done with the jobs of one store or one service.

    register ─▶ ask ─▶ Trial ─▶ heartbeat, each epoch or two minutes: go on? ─▶ tell

`LocalJobs` (local.py) implements it over a store, `HttpJobs` (http.py) over a service, and `ResilientJobs`
(resilient.py) over either of them when it may be unreachable. `RecurringJob` (recurring.py) is one job of any of them.
Whoever runs a trial says which GPUs it runs on (`Gpus`) and what it used. The other side keeps the facts and decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias

from msgspec import field

from zeus.job import MAX_TRIES, Checked, Gpus, JobSpec, Origin, Outcome, Trial, TrialRecord
from zeus.job.value import Above, Count, Whole
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import LEASE_SECONDS
from zeus.trial.knowledge import Knowledge

RENEW_SECONDS = 120.0  # a lease lasts five times as long
# Trials and recurrences that began while the store was unreachable get random numbers from here on.
ALONE = 2**40

Json = dict[str, Any]


class Registered(Checked, frozen=True):
    """A job as it is registered."""

    spec: JobSpec  # with its id and seed filled in
    generation: str  # unique id of the job's history since it was made or last reset; empty: not known yet


class TrialRef(Checked, frozen=True):
    """Identifies a trial."""

    job_id: str
    number: int
    id: str = ""  # tells apart two trials with the same number, as after a backup was restored; empty: not known


class Excerpt(NamedTuple):
    """How much of a job's past `JobsApi.full` tells. Its sums are always about all of it."""

    tries: int | None = None  # the newest so many trials; None: all
    history: int | None = None  # the newest so many recurrences; None: all
    curves: bool = True  # with the epochs of each trial
    points: int | None = None  # at most so many of the epochs of a trial, evenly; None: all


WHOLE = Excerpt()


class Heartbeat(Checked, frozen=True):
    """The answer to a heartbeat."""

    trial: Trial
    go_on: bool


# ------------------------------------------------------------------ what can be said later, too


class TrialEnded(Checked, frozen=True, tag="ended"):
    """How a trial ended. The store has opened it."""

    job_id: str
    number: Count
    outcome: Outcome
    trial_id: str = ""  # tells apart two trials with the same number; empty: not known


class OfflineRun(Checked, frozen=True, tag="ran"):
    """A whole run that began while the store was unreachable."""

    spec: JobSpec
    gpus: Gpus
    batch_size: Whole
    key: str  # identifies the run, so that delivering it twice has no effect
    outcome: Outcome
    # Of the job; empty: the job was never seen; None: not known.
    generation: str | None = field(default=None, name="life")
    log: str = ""  # the end of its log
    origin: Origin | None = None  # who ran it, and where


class EpochUsed(Checked, frozen=True, tag="epoch_used"):
    """What an epoch of a batch size uses, evaluation included."""

    job_id: str
    batch_size: Whole
    gpus: Gpus
    joules: Above
    seconds: Above
    generation: str = field(default="", name="life")  # of the job; empty: not known


class ProfileMade(Checked, frozen=True, tag="profile_made"):
    """A power profile that was measured."""

    key: ProfileKey
    profile: PowerProfile


class TrialLog(Checked, frozen=True, tag="log"):
    """The end of a trial's log."""

    job_id: str
    number: Count
    text: str
    trial_id: str = ""  # empty: not known


Message: TypeAlias = TrialEnded | OfflineRun | EpochUsed | ProfileMade | TrialLog


# ------------------------------------------------------------------ the port


class JobsApi(Protocol):
    """All jobs of one store or service.

    Each method takes full effect or raises: the errors of `Store`, or NotAllowed of a service. Repeating `heartbeat`,
    `tell`, `record_run`, `profiled` or `put_profile` does no harm.
    """

    address: str  # for people, and stored in each message to it; holds no secret

    # ------------------------------------------------------------------ a job and its trials

    def register(self, spec: JobSpec, *, void: bool = False) -> Registered:
        """Register the job, or revise it if it exists. `void` is as in `Store.register`."""

    def find(self, job_id: str) -> Registered:
        """A registered job. Raises NotKnown if there is none."""

    def ask(
        self,
        job_id: str,
        gpus: Gpus,
        recurrence: int | None = None,
        max_tries: int = MAX_TRIES,
        *,
        key: str | None = None,
    ) -> tuple[Trial, Registered]:
        """Open a trial of a new recurrence, or another try of the given one. Also returns the job as it is now.

        If an ask with this `key` has opened a trial of the job before, that trial is returned, whatever became of it.

        Raises:
            InputError: No batch size is left to offer, or the recurrence has converged or used up its tries.
        """

    def trial(self, ref: TrialRef) -> TrialRecord:
        """A trial, its lease, and what it has used so far."""

    def heartbeat(
        self,
        ref: TrialRef,
        so_far: Outcome | None = None,
        next_cost: float | None = None,
        *,
        lease: float = LEASE_SECONDS,
    ) -> Heartbeat:
        """Renew the lease of a running trial. `so_far` (ending LOST) is kept in case the trial is lost.

        With `next_cost`, the trial's cost after its next epoch, also ask the policy whether to begin that epoch.
        """

    def tell(self, ref: TrialRef, outcome: Outcome) -> Trial:
        """Report how a trial ended. A late report, after the lease lapsed, counts too."""

    def record_run(self, run: OfflineRun) -> Trial:
        """Record a run that began while the store could not be reached. It counts once for each key."""

    def profiled(self, used: EpochUsed) -> None:
        """Report what an epoch of a batch size uses."""

    def knowledge(self, job_id: str, trial: Trial) -> Knowledge:
        """What earlier trials tell about the epochs of this one."""

    def keep_log(self, log: TrialLog, *, is_last: bool = False) -> None:
        """Keep the end of a trial's log in the store. `is_last`: there will be no more of it."""

    def excuse(self, job_id: str, numbers: Iterable[int], *, generation: str = "") -> None:
        """Do not hold crashes of these trials against their batch sizes, which are offered again.

        This applies only to trials that completed no epoch.
        """

    def profile(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of exactly this key, if there is one."""

    def profiles(self, job_id: str) -> dict[ProfileKey, PowerProfile]:
        """All power profiles of a job."""

    def put_profile(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store a power profile in place of any with this key."""

    # ------------------------------------------------------------------ for `zeus jobs`

    def briefs(self) -> list[Json]:
        """A short summary of each job, sorted by id."""

    def full(self, job_id: str, excerpt: Excerpt = WHOLE) -> Json:
        """Everything about one job, or less of its past. A service that is older than this Zeus tells all of it."""

    def trials(self, job_id: str, *, newest: int | None = None) -> list[Json]:
        """The trials of a job by number, or the newest so many of them: the `tries` of `full`, without curves."""

    def told_log(self, job_id: str, number: int) -> Json:
        """The end of a trial's log with its time, and the host and folder of the trial: `log`, `at`, `host`, `folder`.

        Raises NotKnown, which says where the trial ran, if neither the store nor its machine has the log.
        """

    def export(self, job_ids: Iterable[str]) -> list[str]:
        """All facts of these jobs, or of all jobs if none is named, as lines of JSON."""

    def import_lines(self, lines: Iterable[str]) -> list[str]:
        """Import what `export` returned, all or nothing. Returns the job ids."""

    def forget(self, job_id: str) -> None:
        """Remove a job with all its facts."""

    def pulse(self) -> dict[str, str]:
        """For each job, a text that changes whenever its facts or its spec change."""

    def restart(self, job_id: str, pulse: str | None = None) -> None:
        """Remove a job's facts but keep it registered. If `pulse` is given, only if the job still has that pulse."""

    def pardon(self, job_id: str, batch_size: int) -> None:
        """Allow a batch size that crashed to be offered again."""

    def fleet(self, weeks: int, last: str = "") -> Json:
        """What all jobs used and saved in so many ISO weeks, up to this one or to `last`: see `report.fleet`."""

    def pause(self, job_id: str, *, paused: bool = True) -> None:
        """Pause a job, or resume it. The trials of a paused job run as before Zeus."""

    def audit(self, job_id: str, *, after: int = 0, most: int = 100) -> Json:
        """Who changed the job: `total` and `entries`, newest first, without the first `after` of them."""

    def close(self) -> None:
        """Close all connections."""
