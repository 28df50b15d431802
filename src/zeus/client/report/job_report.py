"""`JobReport`: all that is known about one job, read from its store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zeus.client.policy_states import PolicyStateCache, as_of_now, paused_decision
from zeus.cost import CostModel
from zeus.errors import InputError
from zeus.job import Ask, Decision, Ending, Gpus, Pardoned, Profiled, TrialRecord, replace
from zeus.ledger.ledger import JobLedger, open_ledger
from zeus.ledger.pareto import ParetoPoint
from zeus.policy.api import decided
from zeus.policy.registry import find_policy
from zeus.policy.view import SizeView, from_events, view
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job, Store


@dataclass(frozen=True)
class JobReport:
    """Everything about one job. Beliefs, limits and the next decision are for the GPUs it last ran on.

    What takes long and is not always shown is computed when it is first asked for.
    """

    job: Job
    trials: Sequence[TrialRecord]
    ledger: JobLedger
    gpus: Gpus | None  # the GPUs of the last trial; None before the first
    following: Decision | None  # what an ask would get now
    stuck: str | None  # why an ask would get nothing, or why this cannot be told
    _state: Any  # of its policy; None: another version of Zeus made the job
    _notes: Sequence[Profiled | Pardoned]
    _profiles: Mapping[ProfileKey, PowerProfile]

    @property
    def phase(self) -> str:
        """What the next recurrence is for."""
        if self.following is not None:
            return self.following.phase.value
        return "new" if self.stuck is None else "stuck"

    @cached_property
    def settled(self) -> JobLedger:
        """The ledger without what running trials have reported so far."""
        if not any(kept.so_far is not None and kept.trial.ending is Ending.OPEN for kept in self.trials):
            return self.ledger
        ended = [replace(one, so_far=None) if one.trial.ending is Ending.OPEN else one for one in self.trials]
        return open_ledger(self.job.spec, ended, self._profiles)

    @cached_property
    def sizes(self) -> tuple[SizeView, ...]:
        """What the policy believes about each batch size."""
        events = sorted([*(kept.trial for kept in self.trials), *self._notes], key=lambda event: event.sequence)
        counting = [now for event in events if (now := as_of_now(self.job, event)) is not None]
        label = "" if self.gpus is None else self.gpus.label
        if self._state is None:
            return from_events(self.job.spec, counting, label)
        return view(self._state, self.job.spec, counting, label)

    @cached_property
    def limits(self) -> Mapping[int, float]:
        """The best power limit (Equation 7) of each batch size that has a profile."""
        if self.gpus is None:
            return {}
        cost, found = CostModel(self.job.spec.eta_knob, self.gpus.max_watts), dict[int, float]()
        for size in self.job.spec.batch_sizes:
            profile = self._profiles.get(ProfileKey(self.job.id, size, self.gpus.kind, self.gpus.count))
            if profile is not None and profile.slices:
                found[size] = profile.best_limit(cost)
        return found

    @cached_property
    def front(self) -> tuple[ParetoPoint, ...]:
        """Time and energy of a run at each batch size and limit, where known."""
        return () if self.gpus is None else self.ledger.points(self.gpus.label)


def report(store: Store, job_id: str, states: PolicyStateCache | None = None) -> JobReport:
    """Read a job. This writes nothing: a trial whose lease has lapsed becomes lost at the next ask, not here.

    Raises:
        NotKnown: There is no such job.
        StoreError: The store did not answer.
    """
    job, trials, notes, profiles = store.past(job_id)
    gpus = replace(trials[-1].trial.ask.gpus, include=job.spec.include) if trials else None
    state, following, stuck = None, None, None
    try:
        policy = find_policy(job.spec.policy, job.policy_version)
    except InputError as unknown:  # another version of Zeus made the job; its trials can be shown all the same
        stuck = str(unknown)
    else:
        state = (states or PolicyStateCache()).state_in(store, job)
        if gpus is not None:
            last = trials[-1].trial.ask
            ask = Ask(number=last.number + 1, recurrence=last.recurrence + 1, gpus=gpus, eta=job.spec.eta_knob)
            try:
                following = paused_decision(job) or decided(policy, state, job.spec, ask)
            except InputError as wrong:
                stuck = str(wrong)
    return JobReport(
        job, trials, open_ledger(job.spec, trials, profiles), gpus, following, stuck, state, notes, profiles
    )
