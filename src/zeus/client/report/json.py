"""The one place where a trial, a recurrence, a default, a saving and a profile become JSON for readers.

Energies and costs are in joules, times in seconds. A number that is not known is None. `zeus.job.wire` is the other
format: it holds the facts themselves, which programs read back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, astuple
from typing import Any

from msgspec import structs

from zeus.client.report.energy import energy_of, footprint
from zeus.cost import CostModel
from zeus.job import Ending, JobSpec, Kind, TrialRecord
from zeus.job.wire import plain, to_json
from zeus.ledger.charge import Spent, overshoot, spent
from zeus.ledger.ledger import Default, JobLedger, Recurrence, Saving
from zeus.ledger.saving_text import saving_sentence
from zeus.policy.repricing import repriced
from zeus.store.api import Store
from zeus.tariff.rates import Footprint, Prices

Json = dict[str, Any]
POINT = ("metric", "joules", "seconds", "limit_watts")
LATELY = 200  # trials that are read to learn the highest power of each set of GPUs


def spec_json(spec: JobSpec) -> Json:
    """A job's spec with the names of `JobSpec`."""
    return dict(plain(spec))


# ---------------------------------------------------------------------- its trials and recurrences


def trial_json(
    spec: JobSpec,
    kept: TrialRecord,
    prices: Prices,
    logs: Mapping[int, str] | None = None,
    *,
    points: int | None = None,
) -> Json:
    """One trial as a row in a table. Its cost is at the job's present η. `logs`: when its log was stored, by number.

    `points`: at most so many of its epochs; None: all.
    """
    trial, told = kept.trial, kept.latest_outcome
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
        "footprint": footprint_json(footprint(energy_of([kept]), prices)),
        "hours": _hours(kept),
        "limits": limits_json(kept),
        "asked_at": kept.asked_at,
        "changed_at": kept.changed_at,
        "leased_until": kept.leased_until,
        **origin_json(kept),
        "watts": watts_of(kept) if trial.ending is Ending.OPEN else None,
        "curve": curve_json(kept, points),
        "log_at": (logs or {}).get(trial.number),
    }


def watts_of(kept: TrialRecord) -> float | None:
    """The mean power of a running trial in its last epoch, or of all of it; None if it is not known."""
    told = kept.latest_outcome
    if told is None:
        return None
    last = told.curve[-1] if told.curve else None
    joules, seconds = (told.joules, told.seconds) if last is None else (last.joules, last.seconds)
    watts = joules / seconds if joules is not None and seconds > 0 else math.nan
    return watts if math.isfinite(watts) else None


def origin_json(kept: TrialRecord) -> Json:
    """Who runs a trial, and on which host."""
    return {name: None if kept.origin is None else getattr(kept.origin, name) or None for name in ("user", "host")}


def curve_json(kept: TrialRecord, most: int | None = None) -> list[Json]:
    """The epochs of a trial, one by one, or at most so many of them: every n-th, up to the last."""
    curve = () if kept.latest_outcome is None else kept.latest_outcome.curve
    if most is not None:
        curve = curve[::-1][:: -(-len(curve) // most)][::-1] if most and curve else ()
    return [{"epoch": one.number, **{name: getattr(one, name) for name in POINT}} for one in curve]


def _hours(kept: TrialRecord) -> list[Json]:
    """Its energy by hour with the rates that it recorded, if it did."""
    hourly = None if kept.latest_outcome is None else kept.latest_outcome.hourly
    return [] if hourly is None else [structs.asdict(row) for row in hourly.rows]


def footprint_json(one: Footprint | None) -> Json | None:
    return None if one is None else {**one.to_json(), "hours_by": one.by or None}


def limits_json(kept: TrialRecord) -> dict[str, int]:
    """Steps or epochs at each power limit, in watts."""
    units: Counter[str] = Counter()
    for one in () if kept.latest_outcome is None else kept.latest_outcome.stretches:
        if one.kind in (Kind.STEP, Kind.EPOCH) and one.limit_watts is not None:
            units[f"{one.limit_watts:g}"] += one.count
    return dict(sorted(units.items(), key=lambda pair: -float(pair[0])))


def recurrence_json(ledger: JobLedger, one: Recurrence, worth: Footprint | None = None) -> Json:
    """A recurrence, the default it is compared with, and what it comes to in money and carbon."""
    usual = ledger.default_of(one)
    names = ("number", "end", "tries", "batch_size", "epochs", "gpu_model", "known_joules", "unknown_tries", "current")
    return {
        **{name: getattr(one, name) for name in names},
        **_use(one.use),
        "footprint": footprint_json(worth),
        "default_joules": None if usual is None else usual.use.joules,
        "default_seconds": None if usual is None else usual.use.seconds,
        "default_basis": None if usual is None else usual.basis.value,
    }


def _use(use: Spent | None) -> dict[str, float | None]:
    return {"joules": None, "seconds": None, "cost": None} if use is None else structs.asdict(use)


# ---------------------------------------------------------------------- its default and its saving


def default_json(one: Default | None) -> Json | None:
    """What one run uses with the default batch size at the highest power limit."""
    if one is None:
        return None
    names = ("batch_size", "limit_watts", "runs", "runs_measured", "epochs", "joules_error", "seconds_error")
    return {**{name: getattr(one, name) for name in names}, "basis": one.basis.value, **structs.asdict(one.use)}


def saving_json(one: Saving | None, paid: Footprint | None = None) -> Json | None:
    """What was saved against the default, what that rests on, and its standard errors.

    Args:
        one: The saving.
        paid: What its recurrences came to. The saving is priced at their mean rates.
    """
    if one is None:
        return None
    found = {
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
        "sentence": "",
        "compared_joules": one.default.joules,  # what the default would have used in their place
        "compared_seconds": one.default.seconds,
    }
    return priced_saving(found, paid)


def priced_saving(saving: Json, paid: Footprint | None) -> Json:
    """A saving with its money and carbon, at the mean rates of what its recurrences came to."""
    worth = (paid or Footprint()).worth(saving["joules"], saving["joules_error"])
    energy, time = ((saving[name], saving[f"{name}_error"]) for name in ("joules", "seconds"))
    compared = (saving["compared_joules"], saving["compared_seconds"])
    sentence = saving_sentence(energy, time, compared, basis=saving["basis"], worth=worth)
    return {**saving, "sentence": sentence, **asdict(worth)}


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
