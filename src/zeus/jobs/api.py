"""The interface of one recurring job: ask, progress, tell.

`zeus.jobs.local` implements it over a store that is always there. `zeus.jobs.remote` implements it over a store or
service that may be unreachable.

    ask ──▶ Trial ──progress, after each epoch──▶ go on? ──▶ tell
                └── renew, every two minutes while it runs

Whoever runs a trial says which GPUs it runs on (`Gpus`) and what it used. The other side keeps the facts and decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zeus.job import MAX_TRIES, Gpus, JobSpec, Outcome, Trial
from zeus.profile import Profiles
from zeus.trial.knowledge import Knowledge

RENEW_SECONDS = 120.0  # a lease lasts five times as long
# Trials and recurrences that began while the store was unreachable get random numbers from here on.
ALONE = 2**40


class RecurringJob(Profiles, Protocol):
    """One recurring job and its power profiles.

    Each method takes full effect or raises. Repeating `renew`, `progress` or `tell` does no harm.
    """

    @property
    def spec(self) -> JobSpec:
        """The job as registered, with id and seed filled in."""

    @property
    def life(self) -> str:
        """Unique id of the job's history since it was made or last reset. Empty if not known yet."""

    def ask(
        self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES, *, key: str | None = None
    ) -> Trial:
        """Open a trial of a new recurrence, or another try of the given one.

        If an ask with this `key` has opened a trial of the job before, that trial is returned, whatever became of it.

        Raises:
            InputError: No batch size is left to offer, or the recurrence has converged or used up its tries.
        """

    def hand(self, number: int, trial_id: str) -> None:
        """Bind a trial number to a trial id. Trials opened through this object are bound already.

        A store restored from a backup may give the number to another trial. Calls for it then raise NotKnown.
        """

    def trial(self, number: int) -> Trial:
        """The current state of a trial."""

    def so_far(self, number: int) -> Outcome | None:
        """What the trial had used at its last renewal (ending LOST), or None if no renewal reported it."""

    def renew(self, number: int, so_far: Outcome | None = None) -> Trial:
        """Renew the lease of a running trial. `so_far` (ending LOST) is kept in case the trial is lost."""

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """Renew, and ask the policy whether to begin the next epoch. `next_cost` is the trial's cost after it."""

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """Report how a trial ended. A late report, after the lease lapsed, counts too."""

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """Report what an epoch of this batch size uses on these GPUs, evaluation included."""

    def knowledge(self, trial: Trial) -> Knowledge:
        """What earlier trials tell about the epochs of this one."""

    def excuse(self, numbers: Iterable[int]) -> None:
        """Do not hold crashes of these trials against their batch sizes, which are offered again.

        This applies only to trials that completed no epoch.
        """
