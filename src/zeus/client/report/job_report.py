"""`JobReport`: all that is known about one job, read from its store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from zeus.client.folds import Folds, as_of_now
from zeus.cost import CostModel
from zeus.errors import InputError
from zeus.job import Ask, Decision, Event, Gpus, Kept, replace
from zeus.ledger.ledger import JobLedger, open_ledger
from zeus.ledger.pareto import ParetoPoint
from zeus.policy.registry import find_policy
from zeus.policy.view import SizeView, from_events, view
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job, Store


@dataclass(frozen=True, slots=True)
class JobReport:
    """Everything about one job. Beliefs, limits and the next decision are for the GPUs it last ran on."""

    job: Job
    trials: tuple[Kept, ...]
    ledger: JobLedger
    gpus: Gpus | None  # the GPUs of the last trial; None before the first
    sizes: tuple[SizeView, ...]  # what the policy believes about each batch size
    limits: Mapping[int, float]  # the best power limit (Equation 7) of each batch size that has a profile
    front: tuple[ParetoPoint, ...]  # time and energy of a run at each batch size and limit, where known
    following: Decision | None  # what an ask would get now
    stuck: str | None  # why an ask would get nothing, or why this cannot be told

    @property
    def phase(self) -> str:
        """What the next recurrence is for."""
        if self.following is not None:
            return self.following.phase.value
        return "new" if self.stuck is None else "stuck"


def report(store: Store, job_id: str, folds: Folds | None = None) -> JobReport:
    """Read a job. This writes nothing: a trial whose lease has lapsed becomes lost at the next ask, not here.

    Raises:
        NotKnown: There is no such job.
        StoreError: The store did not answer.
    """
    folds = folds or Folds()
    job, trials = store.job(job_id), tuple(store.trials(job_id))
    facts = partial(store.log, job_id)
    kept_profiles = store.profiles(job_id)
    events = _counting(job, trials, store)
    ledger = open_ledger(job.spec, trials, kept_profiles)
    gpus = replace(trials[-1].trial.ask.gpus, include=job.spec.include) if trials else None
    label = "" if gpus is None else gpus.label
    limits, front, following, stuck = dict[int, float](), tuple[ParetoPoint, ...](), None, None
    try:
        find_policy(job.spec.policy, job.policy_version)
    except InputError as unknown:  # another version of Zeus made the job; its trials can be shown all the same
        stuck, sizes = str(unknown), from_events(job.spec, events, label)
    else:
        sizes = view(folds.state(job, facts), job.spec, events, label)
    if gpus is not None:
        cost = CostModel(job.spec.eta_knob, gpus.max_watts)
        profiles = _profiles(job, gpus, kept_profiles)
        limits = {size: profile.best_limit(cost) for size, profile in profiles.items() if profile.slices}
        front = ledger.points(label)
    if gpus is not None and stuck is None:
        last = trials[-1].trial.ask
        ask = Ask(number=last.number + 1, recurrence=last.recurrence + 1, gpus=gpus, eta=job.spec.eta_knob)
        try:
            following = folds.decide(job, ask, facts)
        except InputError as wrong:
            stuck = str(wrong)
    return JobReport(job, trials, ledger, gpus, sizes, limits, front, following, stuck)


def _counting(job: Job, trials: Iterable[Kept], store: Store) -> Iterator[Event]:
    """The latest change of each trial and the other events, in order, as far as they still count for this job."""
    events = sorted([*(kept.trial for kept in trials), *store.notes(job.id)], key=lambda event: event.sequence)
    yield from (now for event in events if (now := as_of_now(job, event)) is not None)


def _profiles(job: Job, gpus: Gpus, kept: Mapping[ProfileKey, PowerProfile]) -> dict[int, PowerProfile]:
    keys = {size: ProfileKey(job.id, size, gpus.kind, gpus.count) for size in job.spec.batch_sizes}
    return {size: kept[key] for size, key in keys.items() if key in kept}
