"""One recurring job as those who run it see it: ask, progress, tell.

Over a store that is there (`zeus.jobs.local`), or over a store or service that need not be (`zeus.jobs.remote`).

    ask ──▶ Trial ──progress, after each epoch──▶ go on? ──▶ tell
                └── renew, every two minutes while it runs

Whoever runs a trial says where it runs (`Gpus`) and what it used; the other side holds the facts and decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zeus.job import MAX_TRIES, Gpus, JobSpec, Outcome, Trial
from zeus.profile import Profiles
from zeus.trial.knowledge import Knowledge

RENEW_SECONDS = 120.0  # a lease is five times as long
# From here on, by chance, are the numbers of trials and recurrences that began while their store was away.
ALONE = 2**40


class RecurringJob(Profiles, Protocol):
    """The verbs, and the job's power profiles.

    Each verb happens as a whole or raises; repeating `renew`, `progress` or `tell` does no harm.
    """

    @property
    def spec(self) -> JobSpec:
        """The job as registered, with its id and its seed filled in."""

    @property
    def life(self) -> str:
        """Names this life of the job among all jobs anywhere: another one begins with a reset. Empty: not known yet."""

    def ask(self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES) -> Trial:
        """Open a trial: of a new recurrence, or another try of this one.

        Raises:
            InputError: No size is left to offer, or the recurrence has converged or used up its tries.
        """

    def hand(self, number: int, trial_id: str) -> None:
        """Say which trial is meant by this number from now on; one that was opened here is known.

        Whatever is said of another trial that has this number by now, of a store restored from a backup, is NotKnown.
        """

    def trial(self, number: int) -> Trial:
        """A trial as it stands."""

    def so_far(self, number: int) -> Outcome | None:
        """What the trial had used at its last renewal (ending LOST); None where nothing was said."""

    def renew(self, number: int, so_far: Outcome | None = None) -> Trial:
        """The trial is still running; what it used so far (ending LOST) outlives its loss."""

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """Renew, and ask the policy whether to begin the next epoch, after which the trial would have cost this."""

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """How it ended, in time or late."""

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """What an epoch of this size uses on these GPUs became known, evaluation included."""

    def knowledge(self, trial: Trial) -> Knowledge:
        """What earlier trials tell of this one's epochs."""

    def excuse(self, numbers: Iterable[int]) -> None:
        """Crashes of these trials, if they did no epoch, were not their sizes', which are offered again."""
