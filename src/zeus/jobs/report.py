"""A job as its store has it, put together for people and programs: `zeus jobs`, `zeus run`, the service and the page.

What was used, what the default would have used and what was saved is the ledger's word (`zeus.job.ledger`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from zeus.cost import CostModel
from zeus.env import Prices
from zeus.errors import InputError, NotKnown, StoreError, ZeusError
from zeus.job import Ask, Decision, Ending, Event, Gpus, JobSpec, Kept, Kind, Trial
from zeus.job.charge import Spent, overshoot, spent
from zeus.job.defaults import Default
from zeus.job.ledger import JobLedger, Recurrence, Saving, open_ledger
from zeus.job.pareto import ParetoPoint
from zeus.job.wire import to_json
from zeus.jobs.folds import Folds, as_of_now
from zeus.policy.registry import find_policy
from zeus.policy.repricing import repriced
from zeus.policy.view import SizeView, from_events, view
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobReport:
    """Everything about one job."""

    job: Job
    trials: tuple[Kept, ...]
    ledger: JobLedger
    gpus: Gpus | None  # where it was last asked for; None: never yet
    sizes: tuple[SizeView, ...]  # beliefs there
    limits: Mapping[int, float]  # the best power limit of each size there (Equation 7), where it is profiled
    front: tuple[ParetoPoint, ...]  # time and energy of a run at each size and limit there, as far as they are known
    following: Decision | None  # what an ask would get now, there
    stuck: str | None  # why it would get nothing, or why that is not known

    @property
    def phase(self) -> str:
        """What the next recurrence is for."""
        if self.following is not None:
            return self.following.phase.value
        return "new" if self.stuck is None else "stuck"


def report(store: Store, job_id: str, folds: Folds | None = None) -> JobReport:
    """Read a job. Nothing is written: a lease that has lapsed is lost at the next ask, not by being looked at."""
    folds = folds or Folds()
    job, trials = store.job(job_id), tuple(store.trials(job_id))
    facts = partial(store.log, job_id)
    kept_profiles = store.profiles(job_id)
    ledger = open_ledger(job.spec, trials, kept_profiles)
    gpus = trials[-1].trial.ask.gpus if trials else None
    label = "" if gpus is None else gpus.label
    limits, front, following, stuck = dict[int, float](), tuple[ParetoPoint, ...](), None, None
    try:
        policy = find_policy(job.spec.policy, job.policy_version)
    except InputError as unknown:  # of another Zeus: what its trials say can be shown all the same
        stuck, sizes = str(unknown), from_events(job.spec, _counting(store, job), label)
    else:
        sizes = view(policy, folds.state(job, facts), job.spec, _counting(store, job), label)
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


def _counting(store: Store, job: Job) -> Iterator[Event]:
    """All events that are still of this job; read only where a policy cannot say what it knows."""
    yield from (now for event in store.facts(job.id) if (now := as_of_now(job, event)) is not None)


def _profiles(job: Job, gpus: Gpus, kept: Mapping[ProfileKey, PowerProfile]) -> dict[int, PowerProfile]:
    keys = {size: ProfileKey(job.id, size, gpus.model, gpus.count) for size in job.spec.batch_sizes}
    return {size: kept[key] for size, key in keys.items() if key in kept}


# ---------------------------------------------------------------------- as JSON


def brief(report: JobReport, prices: Prices | None = None) -> dict[str, Any]:
    """A job in a list of jobs. Energies and costs are joules; unknown is None."""
    ledger, following = report.ledger, report.following
    finished, recent = ledger.finished, ledger.recent
    last = finished[-1] if finished else None
    default = None if last is None else ledger.defaults.get(last.gpu_model)
    return {
        "job": report.job.id,
        "policy": report.job.spec.policy,
        "phase": report.phase,
        "recurrences": len(ledger.recurrences),
        "trials": len(report.trials),
        "batch_size": None if following is None else following.batch_size,
        "running": [_running(kept) for kept in report.trials if kept.trial.ending is Ending.OPEN],
        "last": None if last is None else recurrence_json(ledger, last),
        "recent": _recent(recent),
        "default": default_json(default),
        "saving": saving_json(ledger.saving(), prices),
        "recent_saving": saving_json(ledger.saving(recent), prices),
        "joules": ledger.joules,
        "unknown_tries": ledger.unknown_tries,
        "endings": dict(sorted(Counter(kept.trial.ending.value for kept in report.trials).items())),
        "costs": [None if one.use is None else one.use.cost for one in finished],
        "changed_at": max((kept.changed_at for kept in report.trials), default=report.job.at),
        "remark": report.stuck,
    }


def brief_of(store: Store, job_id: str, folds: Folds | None = None, prices: Prices | None = None) -> dict[str, Any]:
    """The brief of a job of this store. One that this Zeus cannot read does not hide the others: it says why.

    Raises:
        NotKnown: There is no such job.
        StoreError: The store did not answer.
    """
    try:
        return brief(report(store, job_id, folds), prices)
    except (NotKnown, StoreError):
        raise
    except Exception as wrong:  # facts that no policy or ledger can bear, whatever it is that breaks
        if not isinstance(wrong, InputError):
            log.warning("job %r cannot be read", job_id, exc_info=True)
        return unreadable(job_id, wrong)


def unreadable(job_id: str, wrong: Exception) -> dict[str, Any]:
    """The brief of a job that another Zeus wrote, or whose facts are not sound."""
    names = ("policy", "recurrences", "trials", "batch_size", "last", "recent", "default", "saving")
    unknown = dict.fromkeys((*names, "recent_saving", "joules", "unknown_tries", "changed_at"))
    told = {"job": job_id, "phase": "unreadable", "endings": {}, "costs": [], "running": []}
    return {**unknown, **told, "remark": f"cannot be read: {wrong if isinstance(wrong, ZeusError) else repr(wrong)}"}


def full(report: JobReport, prices: Prices | None = None) -> dict[str, Any]:
    """Everything about one job."""
    following, gpus = report.following, report.gpus
    spec = {name: value for name, value in to_json(report.job.spec).items() if name not in ("kind", "version")}
    return {
        **brief(report, prices),
        "spec": spec,
        "policy_version": report.job.policy_version,
        "revision": report.job.revision,
        "registered_at": report.job.at,
        "gpu_model": None if gpus is None else gpus.label,
        "max_watts": None if gpus is None else gpus.max_watts,
        "next": None if following is None else asdict(following),
        "stuck": report.stuck,
        "sizes": [{**asdict(one), "limit_watts": report.limits.get(one.batch_size)} for one in report.sizes],
        "points": [asdict(one) for one in report.front],
        "history": [recurrence_json(report.ledger, one) for one in report.ledger.recurrences],
        "tries": [attempt(report.job.spec, kept) for kept in report.trials],
    }


def told_alone(spec: JobSpec, trials: Iterable[Trial]) -> dict[str, Any]:
    """A job as its own trials tell it, in the words of `full`, where its store cannot be asked."""
    kept = [Kept(trial=one, asked_at="", changed_at="", leased_until=None) for one in trials]
    ledger = open_ledger(spec, kept)
    return {
        "history": [recurrence_json(ledger, one) for one in ledger.recurrences],
        "tries": [attempt(spec, one) for one in kept],
        **dict.fromkeys(("default", "recent", "saving", "recent_saving")),
    }


def _running(kept: Kept) -> dict[str, Any]:
    """A trial that is open now."""
    trial, told = kept.trial, kept.told
    return {
        "number": trial.number,
        "recurrence": trial.ask.recurrence,
        "attempt": trial.ask.attempt,
        "batch_size": trial.batch_size,
        "epochs": None if told is None else told.epochs,
        "metric": None if told is None else told.metric,
        "joules": None if told is None else told.joules,
        "asked_at": kept.asked_at,
    }


def recurrence_json(ledger: JobLedger, one: Recurrence) -> dict[str, Any]:
    """A recurrence, and the default of its time."""
    usual = ledger.default_of(one)
    names = ("number", "end", "tries", "batch_size", "epochs", "gpu_model", "known_joules", "unknown_tries", "current")
    return {
        **{name: getattr(one, name) for name in names},
        **_use(one.use),
        "default_joules": None if usual is None else usual.use.joules,
        "default_seconds": None if usual is None else usual.use.seconds,
        "default_basis": None if usual is None else usual.basis.value,
    }


def _use(use: Spent | None) -> dict[str, float | None]:
    return {"joules": None, "seconds": None, "cost": None} if use is None else asdict(use)


def _recent(some: tuple[Recurrence, ...]) -> dict[str, Any] | None:
    """What the job has come to: the size that it mostly runs, and the mean of its latest recurrences."""
    uses = [one.use for one in some if one.use is not None]
    if not uses:
        return None
    size = Counter(one.batch_size for one in some).most_common(1)[0][0]
    return {"recurrences": len(uses), "batch_size": size, **asdict(sum(uses, Spent()).times(1 / len(uses)))}


def default_json(one: Default | None) -> dict[str, Any] | None:
    """The default: what a run with the default size at the highest limit uses."""
    if one is None:
        return None
    names = ("batch_size", "limit_watts", "runs", "runs_measured", "epochs", "joules_error", "seconds_error")
    return {**{name: getattr(one, name) for name in names}, "basis": one.basis.value, **asdict(one.use)}


def saving_json(one: Saving | None, prices: Prices | None = None) -> dict[str, Any] | None:
    """What was saved against the default, with label and error."""
    if one is None:
        return None
    prices = prices or Prices()
    return {
        **asdict(one.saved),
        "share": one.share,
        "time_share": one.time_share,
        "cost_share": one.cost_share,
        "recurrences": one.recurrences,
        "basis": one.basis.value,
        "joules_error": one.joules_error,
        "seconds_error": one.seconds_error,
        "difference_seen": one.difference_seen,
        "compared_joules": one.default.joules,  # what the default would have used in their place
        "compared_seconds": one.default.seconds,
        "money": prices.money(one.saved.joules),
        "currency": prices.currency,
        "gco2e": prices.gco2e(one.saved.joules),
    }


def attempt(spec: JobSpec, kept: Kept) -> dict[str, Any]:
    """One try in a table of tries."""
    trial, told = kept.trial, kept.told
    use = spent(told, spec.eta_knob, trial.ask.max_watts)
    return {
        "number": trial.number,
        "recurrence": trial.ask.recurrence,
        "attempt": trial.ask.attempt,
        "gpu_model": trial.ask.gpu_model,
        "gpus": trial.ask.gpus.count,
        "eta": trial.ask.eta,
        "batch_size": trial.batch_size,
        "phase": trial.decision.phase.value,
        "reason": trial.decision.reason,
        "cost_limit": repriced(trial, spec.eta_knob).decision.cost_limit,
        "overshoot": overshoot(kept),
        "ending": trial.ending.value,
        "epochs": None if told is None else told.epochs,
        "metric": None if told is None else told.metric,
        "joules": None if told is None else told.joules,
        "seconds": None if told is None else told.seconds,
        "cost": None if use is None else use.cost,
        "limits": _limits(kept),
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
    }


def _limits(kept: Kept) -> dict[str, int]:
    """Steps or epochs at each power limit, in watts."""
    units: Counter[str] = Counter()
    for one in () if kept.told is None else kept.told.stretches:
        if one.kind in (Kind.STEP, Kind.EPOCH) and one.limit_watts is not None:
            units[f"{one.limit_watts:g}"] += one.count
    return dict(sorted(units.items(), key=lambda pair: -float(pair[0])))
