"""A job as its store has it, put together for people and programs: `zeus jobs`, the service and the page show this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from zeus.cost import CostModel
from zeus.env import Prices
from zeus.errors import InputError, NotKnown
from zeus.job import Ask, Decision, Event, Profiled
from zeus.optimizer.batch_size.front import Point, points
from zeus.optimizer.batch_size.local import Folds, as_of_now
from zeus.optimizer.batch_size.policy import find_policy
from zeus.optimizer.batch_size.repricing import repriced
from zeus.optimizer.batch_size.summary import Default, JobSummary, Recurrence, Saving, Use, said, summarise, use_of
from zeus.optimizer.batch_size.verbs import Place
from zeus.optimizer.batch_size.view import SizeView, from_events, view
from zeus.profile import PowerProfile, ProfileKey
from zeus.store.api import Job, Kept, Store
from zeus.wire import to_json


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one job."""

    job: Job
    trials: tuple[Kept, ...]
    summary: JobSummary
    place: Place | None  # where it was last asked for; None: never yet
    sizes: tuple[SizeView, ...]  # beliefs there
    limits: Mapping[int, float]  # the best power limit of each size there (Equation 7), where it is profiled
    front: tuple[Point, ...]  # time and energy of a run at each size and limit there, as far as they are known
    following: Decision | None  # what an ask would get now, there
    stuck: str | None  # why it would get nothing, or why that is not known

    @property
    def phase(self) -> str:
        """What the next recurrence is for."""
        if self.following is not None:
            return self.following.phase.value
        return "new" if self.stuck is None else "stuck"


def report(store: Store, job_id: str, folds: Folds | None = None) -> Report:
    """Read a job. Nothing is written: a lease that has lapsed is lost at the next ask, not by being looked at."""
    folds = folds or Folds()
    job, trials = store.job(job_id), tuple(store.trials(job_id))

    def since(sequence: int) -> list[Event]:
        return store.facts(job_id, sequence)

    epochs = [note for note in store.notes(job_id) if isinstance(note, Profiled)]
    kept_profiles = store.profiles(job_id)
    places = {kept.trial.ask.gpu_model: Place.of(kept.trial.ask.gpu_model, kept.trial.ask.max_watts) for kept in trials}
    profiles = {model: _profiles(job, place, kept_profiles) for model, place in places.items()}
    default = job.spec.default_batch_size
    summary = summarise(
        job, trials, epochs, {model: some[default] for model, some in profiles.items() if default in some}
    )
    model = trials[-1].trial.ask.gpu_model if trials else ""
    place = places.get(model)
    limits, front, following, stuck = dict[int, float](), tuple[Point, ...](), None, None
    try:
        policy = find_policy(job.spec.policy, job.policy_version)
    except InputError as unknown:  # of another Zeus: what its trials say can be shown all the same
        stuck, sizes = str(unknown), from_events(job.spec, _counting(store, job), model)
    else:
        sizes = view(policy, folds.state(job, since), job.spec, _counting(store, job), model)
    if place is not None:
        cost = CostModel(job.spec.eta_knob, place.max_watts)
        limits = {size: profile.best_limit(cost) for size, profile in profiles[model].items() if profile.slices}
        here = {one.batch_size: one for one in epochs if one.gpu_model == model}
        front = points(job, trials, here, profiles[model])
    if place is not None and stuck is None:
        last = trials[-1].trial.ask
        ask = Ask(number=last.number + 1, recurrence=last.recurrence + 1, gpu_model=model, max_watts=place.max_watts)
        try:
            following = folds.decide(job, ask, since)
        except InputError as wrong:
            stuck = str(wrong)
    return Report(job, trials, summary, place, sizes, limits, front, following, stuck)


def _counting(store: Store, job: Job) -> Iterator[Event]:
    """All events that are still of this job; read only where a policy cannot say what it knows."""
    yield from (now for event in store.facts(job.id) if (now := as_of_now(job, event)) is not None)


def _profiles(job: Job, place: Place, kept: Mapping[ProfileKey, PowerProfile]) -> dict[int, PowerProfile]:
    keys = {size: ProfileKey(job.id, size, place.gpu_name, place.gpus) for size in job.spec.batch_sizes}
    return {size: kept[key] for size, key in keys.items() if key in kept}


# ---------------------------------------------------------------------- as JSON


def brief(report: Report, prices: Prices | None = None) -> dict[str, Any]:
    """A job in a list of jobs. Energies and costs are joules; unknown is None."""
    summary, following = report.summary, report.following
    finished = summary.finished
    last = finished[-1] if finished else None
    default = None if last is None else summary.default_of(last)
    return {
        "job": report.job.id,
        "policy": report.job.spec.policy,
        "phase": report.phase,
        "recurrences": len(summary.recurrences),
        "trials": len(report.trials),
        "batch_size": None if following is None else following.batch_size,
        "last": None if last is None else _recurrence(last),
        "recent": _recent(summary.recent),
        "default": None if default is None else _default(default),
        "saving": _saving(summary.saving(), prices or Prices()),
        "recent_saving": _saving(summary.saving(summary.recent), prices or Prices()),
        "joules": summary.joules,
        "unknown_tries": summary.unknown_tries,
        "endings": dict(sorted(Counter(kept.trial.ending.value for kept in report.trials).items())),
        "costs": [None if one.use is None else one.use.cost for one in finished],
        "changed_at": max((kept.changed_at for kept in report.trials), default=report.job.at),
        "remark": report.stuck,
    }


def brief_of(store: Store, job_id: str, folds: Folds | None = None, prices: Prices | None = None) -> dict[str, Any]:
    """The brief of a job of this store. One that this Zeus cannot read does not hide the others: it says why.

    Raises:
        NotKnown: There is no such job.
    """
    try:
        return brief(report(store, job_id, folds), prices)
    except NotKnown:
        raise
    except InputError as wrong:
        return unreadable(job_id, wrong)


def unreadable(job_id: str, wrong: InputError) -> dict[str, Any]:
    """The brief of a job that another Zeus wrote."""
    names = ("policy", "recurrences", "trials", "batch_size", "last", "recent", "default", "saving")
    unknown = dict.fromkeys((*names, "recent_saving", "joules", "unknown_tries", "changed_at"))
    told = {"job": job_id, "phase": "unreadable", "endings": {}, "costs": [], "remark": f"cannot be read: {wrong}"}
    return {**unknown, **told}


def full(report: Report, prices: Prices | None = None) -> dict[str, Any]:
    """Everything about one job."""
    following, place = report.following, report.place
    spec = {name: value for name, value in to_json(report.job.spec).items() if name not in ("kind", "version")}
    return {
        **brief(report, prices),
        "spec": spec,
        "policy_version": report.job.policy_version,
        "revision": report.job.revision,
        "registered_at": report.job.at,
        "gpu_model": None if place is None else place.model,
        "max_watts": None if place is None else place.max_watts,
        "next": None if following is None else _plain(following),
        "stuck": report.stuck,
        "sizes": [{**_plain(one), "limit_watts": report.limits.get(one.batch_size)} for one in report.sizes],
        "points": [asdict(one) for one in report.front],
        "history": [_recurrence(one) for one in report.summary.recurrences],
        "tries": [attempt(report.job, kept) for kept in report.trials],
    }


def _recurrence(one: Recurrence) -> dict[str, Any]:
    use = {"joules": None, "seconds": None, "cost": None} if one.use is None else asdict(one.use)
    named = asdict(replace(one, use=None))
    del named["use"]
    return {**named, **use}


def _recent(some: tuple[Recurrence, ...]) -> dict[str, Any] | None:
    """What the job has come to: the size that it mostly runs, and the mean of its latest recurrences."""
    uses = [one.use for one in some if one.use is not None]
    if not uses:
        return None
    size = Counter(one.batch_size for one in some).most_common(1)[0][0]
    return {"recurrences": len(uses), "batch_size": size, **asdict(sum(uses, Use()).times(1 / len(uses)))}


def _default(one: Default) -> dict[str, Any]:
    named = {"batch_size": one.batch_size, "limit_watts": one.limit_watts, "runs": one.runs, "epochs": one.epochs}
    return {**named, **asdict(one.use)}


def _saving(one: Saving | None, prices: Prices) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        **asdict(one.saved),
        "share": one.share,
        "time_share": one.time_share,
        "recurrences": one.recurrences,
        "money": prices.money(one.saved.joules),
        "currency": prices.currency,
        "gco2e": prices.gco2e(one.saved.joules),
    }


def attempt(job: Job, kept: Kept) -> dict[str, Any]:
    """One try in a table of tries."""
    trial, told, use = kept.trial, said(kept), use_of(job.spec, kept)
    bound = repriced(trial, job.eta_of(trial), job.spec.eta_knob).decision.cost_limit
    return {
        "number": trial.number,
        "recurrence": trial.ask.recurrence,
        "attempt": trial.ask.attempt,
        "gpu_model": trial.ask.gpu_model,
        "batch_size": trial.batch_size,
        "phase": trial.decision.phase.value,
        "reason": trial.decision.reason,
        "cost_limit": bound,
        "ending": trial.ending.value,
        "epochs": None if told is None else told.epochs,
        "metric": None if told is None else told.metric,
        "joules": None if told is None else told.joules,
        "seconds": None if told is None else told.seconds,
        "cost": None if use is None else use.cost,
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
    }


def _plain(one: Decision | SizeView) -> dict[str, Any]:
    return asdict(one)
