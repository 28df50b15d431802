"""The one place where a job, a trial, a recurrence, a default, a saving and a profile become JSON for readers.

Energies and costs are in joules, times in seconds. A number that is not known is None. `zeus.job.wire` is the other
format: it holds the facts themselves, which programs read back.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict, astuple
from typing import Any

from msgspec import structs

from zeus.client.folds import Folds
from zeus.client.report.footprints import by_recurrence, footprint, of_saving, total
from zeus.client.report.job_report import JobReport, report
from zeus.client.report.standing import UNREADABLE, curve_json, origin_json, standing, watts_of
from zeus.cost import GPU_ONLY, CostModel
from zeus.errors import InputError, NotKnown, StoreError, ZeusError
from zeus.job import Ending, JobSpec, Kept, Kind, Trial
from zeus.job.wire import plain, to_json
from zeus.ledger.charge import Spent, overshoot, spent
from zeus.ledger.ledger import Default, JobLedger, Recurrence, Saving, open_ledger
from zeus.policy.repricing import repriced
from zeus.store.api import Store
from zeus.tariff.rates import Footprint, Prices

log = logging.getLogger(__name__)

Json = dict[str, Any]
RUNNING = ("number", "recurrence", "attempt", "batch_size", "epochs", "metric", "joules", "asked_at")
RUNNING_WHERE = ("user", "host", "gpu_model", "gpus")
LATELY = 200  # trials that are read to learn the highest power of each set of GPUs


# ---------------------------------------------------------------------- a job


def brief(report: JobReport, prices: Prices | None = None) -> Json:
    """A job as one row in a list of jobs."""
    ledger, following = report.ledger, report.following
    finished, recent = ledger.finished, ledger.recent
    last = finished[-1] if finished else None
    default = None if last is None else ledger.defaults.get(last.gpu_model)
    prices = prices or Prices()
    worth = by_recurrence(report.trials, prices)
    told = {
        "job": report.job.id,
        "policy": report.job.spec.policy,
        "phase": report.phase,
        "recurrences": len(ledger.recurrences),
        "trials": len(report.trials),
        "batch_size": None if following is None else following.batch_size,
        "running": [_running(report.job.spec, kept) for kept in report.trials if kept.trial.ending is Ending.OPEN],
        "last": None if last is None else recurrence_json(ledger, last, worth),
        "recent": _recent(recent),
        "default": default_json(default),
        "default_why_not": None if default is not None else ledger.why_no_default(last.gpu_model if last else ""),
        "saving": saving_json(ledger.saving(), _paid(ledger, finished, worth)),
        "recent_saving": saving_json(ledger.saving(recent), _paid(ledger, recent, worth)),
        "surer": ledger.surer(),
        "lost": _lost(ledger.lost),
        "joules": ledger.joules,
        "footprint": _footprint(total(report.trials, prices)),
        "unknown_tries": ledger.unknown_tries,
        "endings": dict(sorted(Counter(kept.trial.ending.value for kept in report.trials).items())),
        "costs": [None if one.use is None else one.use.cost for one in finished],
        "changed_at": max((kept.changed_at for kept in report.trials), default=report.job.at),
        "remark": report.stuck,
    }
    return {**told, **standing(report, told)}


def brief_of(store: Store, job_id: str, folds: Folds | None = None, prices: Prices | None = None) -> Json:
    """The brief of a job in this store. A job that cannot be read gets a brief that says why.

    Raises:
        NotKnown: There is no such job.
        StoreError: The store did not answer.
    """
    try:
        return brief(report(store, job_id, folds), prices)
    except (NotKnown, StoreError):
        raise
    except Exception as wrong:  # damaged facts can break anything; the other jobs must still be listed
        if not isinstance(wrong, InputError):
            log.warning("job %r cannot be read", job_id, exc_info=True)
        return unreadable(job_id, wrong)


def unreadable(job_id: str, wrong: Exception) -> Json:
    """The brief of a job that another version of Zeus wrote, or whose facts are damaged."""
    names = ("policy", "recurrences", "trials", "batch_size", "last", "recent", "default", "saving")
    unknown = dict.fromkeys(
        (*names, "recent_saving", "surer", "lost", "joules", "footprint", "unknown_tries", "changed_at")
    )
    told = {"job": job_id, "phase": "unreadable", "endings": {}, "costs": [], "running": []}
    why = f"cannot be read: {wrong if isinstance(wrong, ZeusError) else repr(wrong)}"
    return {**unknown, **UNREADABLE, **told, "default_why_not": f"the job {why}", "remark": why}


def full(report: JobReport, prices: Prices | None = None, logs: Mapping[int, str] | None = None) -> Json:
    """Everything about one job. `logs`: when the log of each trial was stored."""
    following, gpus, logs = report.following, report.gpus, logs or {}
    prices = prices or Prices()
    worth = by_recurrence(report.trials, prices)
    return {
        **brief(report, prices),
        "spec": spec_json(report.job.spec),
        "policy_version": report.job.policy_version,
        "revision": report.job.revision,
        "registered_at": report.job.at,
        "paused_by": report.job.paused_by,
        "max_watts": None if gpus is None else gpus.max_watts,
        "next": None if following is None else plain(following),
        "stuck": report.stuck,
        "sizes": [{**asdict(one), "limit_watts": report.limits.get(one.batch_size)} for one in report.sizes],
        "points": [asdict(one) for one in report.front],
        "history": [recurrence_json(report.ledger, one, worth) for one in report.ledger.recurrences],
        "tries": [trial_json(report.job.spec, kept, prices, logs) for kept in report.trials],
    }


def full_without_store(spec: JobSpec, trials: Iterable[Trial], why: str, prices: Prices | None = None) -> Json:
    """The part of `full` that these trials alone can tell, for when the store does not answer; `why` says why."""
    kept = [Kept(trial=one, asked_at="", changed_at="", leased_until=None) for one in trials]
    ledger = open_ledger(spec, kept)
    prices = prices or Prices()
    worth = by_recurrence(kept, prices)
    return {
        "spec": spec_json(spec),
        "history": [recurrence_json(ledger, one, worth) for one in ledger.recurrences],
        "tries": [trial_json(spec, one, prices) for one in kept],
        "default_why_not": why,
        **dict.fromkeys(("default", "recent", "saving", "recent_saving", "surer", "lost")),
    }


def run_json(job_id: str, told: Json, recurrences: Set[int], limits: Mapping[int, float | None]) -> Json:
    """What `zeus run` reports: some recurrences of a job, each with its trials.

    Args:
        job_id: The job.
        told: What `full` or `full_without_store` says about it.
        recurrences: The numbers of the recurrences to report.
        limits: The last power limit of each trial that ran here, in watts, by trial number.
    """
    tries = [{**one, "trial": one["number"], "power_limit": limits.get(one["number"])} for one in told["tries"]]
    return {
        "job": job_id,
        "include": told["spec"].get("include", list(GPU_ONLY)),
        "recurrences": [
            {
                **row,
                "recurrence": row["number"],
                "converged": row["end"] == "converged",
                "tries": [one for one in tries if one["recurrence"] == row["number"]],
            }
            for row in told["history"]
            if row["number"] in recurrences
        ],
        "default": told["default"],
        "recent": told["recent"],
        "saving": _with_old_names(told["saving"], told["default"]),
        "recent_saving": told["recent_saving"],
        "surer": told.get("surer"),  # older services send neither this nor the next
        "lost": told.get("lost"),
    }


def spec_json(spec: JobSpec) -> Json:
    """A job's spec with the names of `JobSpec`."""
    return dict(plain(spec))


# ---------------------------------------------------------------------- its trials and recurrences


def trial_json(spec: JobSpec, kept: Kept, prices: Prices, logs: Mapping[int, str] | None = None) -> Json:
    """One trial as a row in a table. Its cost is at the job's present η. `logs`: when its log was stored, by number."""
    trial, told = kept.trial, kept.told
    use = spent(told, spec.eta_knob, trial.ask.max_watts)
    return {
        "number": trial.number,
        "recurrence": trial.ask.recurrence,
        "attempt": trial.ask.attempt,
        "gpu_model": trial.ask.gpu_model,
        "gpus": trial.ask.gpus.count,
        "include": list(trial.ask.gpus.include),
        "eta": trial.ask.eta,
        "batch_size": trial.batch_size,
        "micro_batch_size": None if told is None else told.micro_batch_size,
        "samples": None if told is None else told.samples,
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
        "footprint": _footprint(footprint(kept, prices)),
        "hours": _hours(kept),
        "limits": _limits(kept),
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
        **origin_json(kept),
        "curve": curve_json(kept),
        "log_at": (logs or {}).get(trial.number),
    }


def _running(spec: JobSpec, kept: Kept) -> Json:
    row = trial_json(spec, kept, Prices())  # its price is not shown
    live = {"watts": watts_of(kept), "max_epochs": spec.max_epochs}
    return {**{name: row[name] for name in (*RUNNING, *RUNNING_WHERE)}, **live}


def _hours(kept: Kept) -> list[Json]:
    """Its energy by hour with the rates that it recorded, if it did."""
    hourly = None if kept.told is None else kept.told.hourly
    return [] if hourly is None else [structs.asdict(row) for row in hourly.rows]


def _footprint(one: Footprint | None) -> Json | None:
    return None if one is None else {**one.to_json(), "hours_by": one.by or None}


def _limits(kept: Kept) -> dict[str, int]:
    """Steps or epochs at each power limit, in watts."""
    units: Counter[str] = Counter()
    for one in () if kept.told is None else kept.told.stretches:
        if one.kind in (Kind.STEP, Kind.EPOCH) and one.limit_watts is not None:
            units[f"{one.limit_watts:g}"] += one.count
    return dict(sorted(units.items(), key=lambda pair: -float(pair[0])))


def recurrence_json(ledger: JobLedger, one: Recurrence, worth: Mapping[int, Footprint] | None = None) -> Json:
    """A recurrence, the default it is compared with, and what it comes to in money and carbon."""
    usual = ledger.default_of(one)
    names = ("number", "end", "tries", "batch_size", "epochs", "gpu_model", "known_joules", "unknown_tries", "current")
    return {
        **{name: getattr(one, name) for name in names},
        **_use(one.use),
        "footprint": _footprint((worth or {}).get(one.number)),
        "default_joules": None if usual is None else usual.use.joules,
        "default_seconds": None if usual is None else usual.use.seconds,
        "default_basis": None if usual is None else usual.basis.value,
    }


def _use(use: Spent | None) -> dict[str, float | None]:
    return {"joules": None, "seconds": None, "cost": None} if use is None else structs.asdict(use)


def _recent(some: tuple[Recurrence, ...]) -> Json | None:
    """The batch size that the latest recurrences mostly ran, and their mean use."""
    uses = [one.use for one in some if one.use is not None]
    if not uses:
        return None
    size = Counter(one.batch_size for one in some).most_common(1)[0][0]
    return {"recurrences": len(uses), "batch_size": size, **structs.asdict(sum(uses, Spent()).times(1 / len(uses)))}


def _lost(some: tuple[Recurrence, ...]) -> Json | None:
    """What was used by recurrences of which no metric was ever seen; None if there is no such recurrence."""
    known = [one.known_joules for one in some if one.known_joules is not None]
    return {"recurrences": len(some), "joules": sum(known) if known else None} if some else None


# ---------------------------------------------------------------------- its default and its saving


def default_json(one: Default | None) -> Json | None:
    """What one run uses with the default batch size at the highest power limit."""
    if one is None:
        return None
    names = ("batch_size", "limit_watts", "runs", "runs_measured", "epochs", "joules_error", "seconds_error")
    return {**{name: getattr(one, name) for name in names}, "basis": one.basis.value, **structs.asdict(one.use)}


def _paid(ledger: JobLedger, some: Iterable[Recurrence], worth: Mapping[int, Footprint]) -> list[Footprint]:
    """What the recurrences of a saving come to."""
    compared = [one.number for one in some if one.use is not None and ledger.default_of(one) is not None]
    return [worth[number] for number in compared if number in worth]


def saving_json(one: Saving | None, paid: Iterable[Footprint] = ()) -> Json | None:
    """What was saved against the default, what that rests on, and its standard errors.

    Args:
        one: The saving.
        paid: What its recurrences came to. The saving is priced at their mean rates.
    """
    if one is None:
        return None
    worth = of_saving(one, paid)
    return {
        **structs.asdict(one.saved),
        "share": one.share,
        "time_share": one.time_share,
        "cost_share": one.cost_share,
        "recurrences": one.recurrences,
        "basis": one.basis.value,
        "joules_error": one.joules_error,
        "seconds_error": one.seconds_error,
        "share_error": one.share_error,
        "time_share_error": one.time_share_error,
        "difference_seen": one.difference_seen,
        "sentence": one.sentence((worth.money, worth.currency, worth.gco2e)),
        "compared_joules": one.default.joules,  # what the default would have used in their place
        "compared_seconds": one.default.seconds,
        "money": worth.money,
        "currency": worth.currency,
        "gco2e": worth.gco2e,
    }


def _with_old_names(saving: Json | None, default: Json | None) -> Json | None:
    """A saving that also has the names of version 0.1, which `zeus run --json` keeps."""
    if saving is None or default is None:
        return saving
    shares = {"joules_share": saving["share"], "seconds_share": saving["time_share"]}
    usual = {f"default_{name}": default[name] for name in ("limit_watts", "joules", "seconds", "cost")}
    return {**saving, **shares, **usual}


# ---------------------------------------------------------------------- its power profiles


def profiles_json(store: Store, job_id: str) -> list[Json]:
    """All power profiles of a job, each with the cost of a step at each limit and the best limit (Equation 7).

    Args:
        store: Where the job is.
        job_id: The job, whose present η prices the steps.
    """
    job, rows = store.job(job_id), []
    lately = store.trials(job_id, after=max(0, store.count(job_id) - LATELY))
    watts = {(kept.trial.ask.gpus.kind, kept.trial.ask.gpus.count): kept.trial.ask.max_watts for kept in lately}
    for key, found in sorted(store.profiles(job_id).items(), key=lambda pair: astuple(pair[0])):
        best, costs = None, dict[str, float]()
        if found.slices:
            highest = watts.get((key.gpu_model, key.gpu_count)) or max(found.limits) * key.gpu_count
            model = CostModel(job.spec.eta_knob, highest)
            best = found.best_limit(model)
            costs = {f"{one.limit_watts:g}": one.step_cost(model) for one in found.slices}
        rows.append({"key": plain(key), "profile": to_json(found), "best_limit": best, "costs": costs})
    return rows
