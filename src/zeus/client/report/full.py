"""Everything about one job: what `zeus jobs show`, `zeus run` and the page of a job tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict
from typing import Any, TypeVar

from zeus.client.api import WHOLE, Excerpt
from zeus.client.report.brief import NO_PRICES, brief
from zeus.client.report.energy import energy_of, footprint
from zeus.client.report.job_report import JobReport
from zeus.client.report.json import limits_json, recurrence_json, spec_json, trial_json
from zeus.cost import GPU_ONLY
from zeus.job import JobSpec, Trial, TrialRecord
from zeus.job.wire import plain
from zeus.ledger.ledger import JobLedger, Recurrence, open_ledger
from zeus.tariff.rates import Prices

T = TypeVar("T")
Json = dict[str, Any]


def full(
    report: JobReport,
    prices: Prices = NO_PRICES,
    logs: Mapping[int, str] | None = None,
    excerpt: Excerpt = WHOLE,
) -> Json:
    """Everything about one job, or less of its past.

    Args:
        report: The job.
        prices: What its energy costs.
        logs: When the log of each trial was stored.
        excerpt: How much of its past is told.
    """
    following, gpus, row = report.following, report.gpus, brief(report, prices)
    history = _newest(report.ledger.recurrences, excerpt.history)
    return {
        **row,
        "costs": _newest(row["costs"], excerpt.history),
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
        "history": _history(report.ledger, history, report.trials, prices),
        "tries": [
            trial_json(report.job.spec, kept, prices, logs, points=excerpt.points if excerpt.curves else 0)
            for kept in _newest(report.trials, excerpt.tries)
        ],
    }


def full_without_store(spec: JobSpec, trials: Iterable[Trial], why: str, prices: Prices = NO_PRICES) -> Json:
    """The part of `full` that these trials alone can tell, for when the store does not answer; `why` says why."""
    kept = [TrialRecord(trial=one, asked_at="", changed_at="", leased_until=None) for one in trials]
    ledger = open_ledger(spec, kept)
    return {
        "spec": spec_json(spec),
        "history": _history(ledger, ledger.recurrences, kept, prices),
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


def _history(
    ledger: JobLedger, some: Sequence[Recurrence], trials: Iterable[TrialRecord], prices: Prices
) -> list[Json]:
    """Some recurrences, each with its footprint and the power limit that most of its last trial ran at."""
    tries: dict[int, list[TrialRecord]] = {one.number: [] for one in some}
    for kept in trials:
        if kept.trial.ask.recurrence in tries:
            tries[kept.trial.ask.recurrence].append(kept)
    rows = []
    for one in some:
        limits = limits_json(tries[one.number][-1])
        limit = max(limits, key=lambda watts: limits[watts], default=None)
        row = recurrence_json(ledger, one, footprint(energy_of(tries[one.number]), prices))
        rows.append({**row, "limit_watts": None if limit is None else float(limit)})
    return rows


def _newest(some: Sequence[T], most: int | None) -> Sequence[T]:
    """The last so many, or all."""
    return some if most is None else some[max(0, len(some) - most) :]


def _with_old_names(saving: Json | None, default: Json | None) -> Json | None:
    """A saving that also has the names of version 0.1, which `zeus run --json` keeps."""
    if saving is None or default is None:
        return saving
    shares = {"joules_share": saving["share"], "seconds_share": saving["time_share"]}
    usual = {f"default_{name}": default[name] for name in ("limit_watts", "joules", "seconds", "cost")}
    return {**saving, **shares, **usual}
