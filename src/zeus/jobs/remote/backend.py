"""Where a recurring job is kept, as `ResilientJob` needs it: a store in this process, or a service over HTTP.

Every verb is told how long it may wait. Where the other side is away, it raises StoreError within about that time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from zeus.job import Gpus, JobSpec, Outcome, Trial
from zeus.jobs.messages import Message
from zeus.jobs.remote.retry import Contact, Patience
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.knowledge import Knowledge


@dataclass(frozen=True, slots=True)
class Registered:
    """A job as it is registered."""

    spec: JobSpec
    life: str  # see `RecurringJob.life`


@dataclass(frozen=True, slots=True)
class Which:
    """The trial that is meant."""

    number: int
    id: str = ""  # of two trials with one number, which; empty: not known


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """What is answered to a trial that renews."""

    trial: Trial
    go_on: bool


class Backend(Protocol):
    """The other side."""

    address: str  # what messages to it are bound to: no secret is in it
    contact: Contact
    begin: Patience  # of a run that begins

    def find(self, job_id: str, patience: Patience) -> Registered:
        """A job that somebody has registered, or NotKnown."""

    def register(self, spec: JobSpec, void: bool, patience: Patience) -> Registered:
        """The job of this spec, made or revised; `void` is as in `Store.register`."""

    def ask(
        self, spec: JobSpec, gpus: Gpus, recurrence: int | None, max_tries: int, patience: Patience
    ) -> tuple[Trial, Registered]:
        """Open a trial, once, however often it must be tried; and the job as it is now."""

    def trial(self, spec: JobSpec, which: Which, patience: Patience) -> tuple[Trial, Outcome | None]:
        """A trial as it stands, and what it has used so far."""

    def heartbeat(
        self, spec: JobSpec, which: Which, so_far: Outcome | None, next_cost: float | None, patience: Patience
    ) -> HeartbeatAnswer:
        """Renew, and ask the policy where `next_cost` is given."""

    def deliver(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        """Take in a message; the trial that it ends, where it ends one.

        Delivered again it changes nothing, except that what an epoch uses is then noted twice, which says the same.
        """

    def knowledge(self, spec: JobSpec, trial: Trial, patience: Patience) -> Knowledge:
        """What earlier trials tell of this one's epochs."""

    def excuse(self, job: Registered, numbers: list[int], patience: Patience) -> None:
        """As `RecurringJob.excuse`."""

    def profile(self, key: ProfileKey, patience: Patience) -> PowerProfile | None:
        """The power profile of exactly this key."""

    def profiles(self, job_id: str, patience: Patience) -> dict[ProfileKey, PowerProfile]:
        """All power profiles of a job."""

    def close(self) -> None:
        """Let go of connections."""
