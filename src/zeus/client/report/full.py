"""Everything about one job: what `zeus jobs show`, `zeus run` and the page of a job tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import asdict
from typing import Any

from zeus.client.report.brief import NO_PRICES, brief
from zeus.client.report.energy import energy_of, footprint
from zeus.client.report.job_report import JobReport
from zeus.client.report.json import recurrence_json, spec_json, trial_json
from zeus.cost import GPU_ONLY
from zeus.job import JobSpec, Kept, Trial
from zeus.job.wire import plain
from zeus.ledger.ledger import open_ledger
from zeus.tariff.rates import Footprint, Prices

Json = dict[str, Any]


def full(report: JobReport, prices: Prices = NO_PRICES, logs: Mapping[int, str] | None = None) -> Json:
    """Everything about one job. `logs`: when the log of each trial was stored."""
    following, gpus = report.following, report.gpus
    worth = _by_recurrence(report.trials, prices)
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
        "history": [recurrence_json(report.ledger, one, worth.get(one.number)) for one in report.ledger.recurrences],
        "tries": [trial_json(report.job.spec, kept, prices, logs) for kept in report.trials],
    }


def full_without_store(spec: JobSpec, trials: Iterable[Trial], why: str, prices: Prices = NO_PRICES) -> Json:
    """The part of `full` that these trials alone can tell, for when the store does not answer; `why` says why."""
    kept = [Kept(trial=one, asked_at="", changed_at="", leased_until=None) for one in trials]
    ledger = open_ledger(spec, kept)
    worth = _by_recurrence(kept, prices)
    return {
        "spec": spec_json(spec),
        "history": [recurrence_json(ledger, one, worth.get(one.number)) for one in ledger.recurrences],
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


def _by_recurrence(kepts: Iterable[Kept], prices: Prices) -> dict[int, Footprint]:
    """The footprint of each recurrence, by its number. One whose energy is unknown is missing."""
    tries: defaultdict[int, list[Kept]] = defaultdict(list)
    for kept in kepts:
        tries[kept.trial.ask.recurrence].append(kept)
    found = {number: footprint(energy_of(some), prices) for number, some in tries.items()}
    return {number: one for number, one in found.items() if one is not None}


def _with_old_names(saving: Json | None, default: Json | None) -> Json | None:
    """A saving that also has the names of version 0.1, which `zeus run --json` keeps."""
    if saving is None or default is None:
        return saving
    shares = {"joules_share": saving["share"], "seconds_share": saving["time_share"]}
    usual = {f"default_{name}": default[name] for name in ("limit_watts", "joules", "seconds", "cost")}
    return {**saving, **shares, **usual}
