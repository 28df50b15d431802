"""One recurring job, wherever it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zeus.client.api import EpochUsed, JobsApi, Registered, TrialLog, TrialRef
from zeus.job import MAX_TRIES, Gpus, JobSpec, Outcome, Trial
from zeus.profile import PowerProfile, ProfileKey, nearest
from zeus.store.api import LEASE_SECONDS
from zeus.trial.knowledge import Knowledge


class RecurringJob:
    """One job of a `JobsApi`, and the ids of its trials. Its power profiles are a `Profiles`.

    Args:
        jobs: Where the job is.
        now: The job as registered.
    """

    def __init__(self, jobs: JobsApi, now: Registered) -> None:
        self._jobs, self._now = jobs, now
        self._ids: dict[int, str] = {}  # trial ids by number, of trials opened here or bound by `bind_trial_id`

    @classmethod
    def find(cls, jobs: JobsApi, job_id: str) -> RecurringJob:
        """A registered job: see `JobsApi.find`."""
        return cls(jobs, jobs.find(job_id))

    @classmethod
    def register(cls, jobs: JobsApi, spec: JobSpec, *, void: bool = False) -> RecurringJob:
        """Register the job, or revise it if it exists: see `JobsApi.register`."""
        return cls(jobs, jobs.register(spec, void=void))

    @property
    def jobs(self) -> JobsApi:
        """Where the job is."""
        return self._jobs

    @property
    def spec(self) -> JobSpec:
        """The job as registered, with id and seed filled in."""
        return self._now.spec

    @property
    def generation(self) -> str:
        """Unique id of the job's history since it was made or last reset. Empty if not known yet."""
        return self._now.generation

    def ask(
        self, gpus: Gpus, recurrence: int | None = None, max_tries: int = MAX_TRIES, *, key: str | None = None
    ) -> Trial:
        """Open a trial: see `JobsApi.ask`."""
        trial, self._now = self._jobs.ask(self.spec.id, gpus, recurrence, max_tries, key=key)
        self.bind_trial_id(trial.number, trial.id)
        return trial

    def bind_trial_id(self, number: int, trial_id: str) -> None:
        """Bind a trial number to a trial id. Trials opened through this object are bound already.

        A store restored from a backup may give the number to another trial. Calls for it then raise NotKnown.
        """
        self._ids[number] = trial_id

    def trial(self, number: int) -> Trial:
        """The current state of a trial."""
        return self._jobs.trial(self._ref(number)).trial

    def so_far(self, number: int) -> Outcome | None:
        """What the trial had used at its last renewal (ending LOST), or None if no renewal reported it."""
        return self._jobs.trial(self._ref(number)).so_far

    def renew(self, number: int, so_far: Outcome | None = None, *, lease: float = LEASE_SECONDS) -> Trial:
        """Renew the lease of a running trial: see `JobsApi.heartbeat`."""
        return self._jobs.heartbeat(self._ref(number), so_far, lease=lease).trial

    def progress(self, number: int, so_far: Outcome, next_cost: float) -> bool:
        """Renew, and ask the policy whether to begin the next epoch. `next_cost` is the trial's cost after it."""
        return self._jobs.heartbeat(self._ref(number), so_far, next_cost).go_on

    def tell(self, number: int, outcome: Outcome) -> Trial:
        """Report how a trial ended."""
        return self._jobs.tell(self._ref(number), outcome)

    def profiled(self, batch_size: int, gpus: Gpus, *, joules: float, seconds: float) -> None:
        """Report what an epoch of this batch size uses on these GPUs, evaluation included."""
        self._jobs.profiled(EpochUsed(self.spec.id, batch_size, gpus, joules, seconds, self.generation))

    def knowledge(self, trial: Trial) -> Knowledge:
        """What earlier trials tell about the epochs of this one."""
        return self._jobs.knowledge(self.spec.id, trial)

    def keep_log(self, number: int, text: str, *, is_last: bool = False) -> None:
        """Keep the end of a trial's log: see `JobsApi.keep_log`."""
        self._jobs.keep_log(TrialLog(self.spec.id, number, text, self._ids.get(number, "")), is_last=is_last)

    def excuse(self, numbers: Iterable[int]) -> None:
        """Do not hold crashes of these trials against their batch sizes: see `JobsApi.excuse`."""
        self._jobs.excuse(self.spec.id, numbers, generation=self.generation)

    def get(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of this key."""
        return self._jobs.profile(key)

    def near(self, key: ProfileKey) -> PowerProfile | None:
        """The power profile of the nearest other batch size that the job offers, on the same GPUs."""
        known = self._jobs.profiles(key.job)
        same = {one.batch_size for one in known if replace(one, batch_size=key.batch_size) == key}
        sizes = nearest(key.batch_size, same & set(self.spec.batch_sizes))
        return known[replace(key, batch_size=sizes[0])] if sizes else None

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        """Store a power profile."""
        self._jobs.put_profile(key, profile)

    def _ref(self, number: int) -> TrialRef:
        return TrialRef(self.spec.id, number, self._ids.get(number, ""))
