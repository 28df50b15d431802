"""The backend of a `ResilientJob`: a store opened in this process, or a service over HTTP.

Every method is given how long it may wait. If the backend does not answer in about that time, it raises StoreError.
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
    """A job as the backend has registered it."""

    spec: JobSpec
    life: str  # see `RecurringJob.life`


@dataclass(frozen=True, slots=True)
class Which:
    """Identifies a trial."""

    number: int
    id: str = ""  # tells apart two trials with the same number; empty: not known


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a renewal."""

    trial: Trial
    go_on: bool


class Backend(Protocol):
    """A store or a service."""

    address: str  # stored in each message to it; holds no secret
    contact: Contact
    begin: Patience  # for requests at the start of a run

    def find(self, job_id: str, patience: Patience) -> Registered:
        """A registered job. Raises NotKnown if there is none."""

    def register(self, spec: JobSpec, void: bool, patience: Patience) -> Registered:
        """Register the job, or revise it if it exists. `void` is as in `Store.register`."""

    def ask(
        self, spec: JobSpec, gpus: Gpus, recurrence: int | None, max_tries: int, key: str, patience: Patience
    ) -> tuple[Trial, Registered]:
        """Open a trial, only one for each key however often it is asked for. Also returns the job as it is now."""

    def trial(self, spec: JobSpec, which: Which, patience: Patience) -> tuple[Trial, Outcome | None]:
        """The current state of a trial, and what it has used so far."""

    def heartbeat(
        self, spec: JobSpec, which: Which, so_far: Outcome | None, next_cost: float | None, patience: Patience
    ) -> HeartbeatAnswer:
        """Renew the lease. If `next_cost` is given, also ask the policy whether to go on."""

    def deliver(self, message: Message, spec: JobSpec | None, patience: Patience) -> Trial | None:
        """Deliver a message. Returns the trial that it ends, if it ends one.

        Delivering a message again does no harm. An `EpochUsed` is then stored twice, with the same values.
        """

    def knowledge(self, spec: JobSpec, trial: Trial, patience: Patience) -> Knowledge:
        """What earlier trials tell about the epochs of this one."""

    def excuse(self, job: Registered, numbers: list[int], patience: Patience) -> None:
        """See `RecurringJob.excuse`."""

    def profile(self, key: ProfileKey, patience: Patience) -> PowerProfile | None:
        """The power profile of this key, if there is one."""

    def profiles(self, job_id: str, patience: Patience) -> dict[ProfileKey, PowerProfile]:
        """All power profiles of a job."""

    def close(self) -> None:
        """Close all connections."""
