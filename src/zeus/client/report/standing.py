"""How a job stands, in plain words: what its phase means, whether it runs, fails or loses, and what runs now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.client.report.job_report import JobReport
from zeus.job import Ending, EpochPoint, Kept
from zeus.ledger.ledger import RecurrenceEnd

Json = dict[str, Any]

LATELY = 10  # ended trials whose failures are counted
IN_A_ROW = 3  # trials in a row that failed, after which a job counts as failing
FAILED = (Ending.CRASHED, Ending.LOST)

# What a phase of the next recurrence means. A newer service may know others.
PHASES = {
    "new": "it has not run yet",
    "default": "runs the default batch size",
    "pruning": "finds out which batch sizes reach the target, from the default outward",
    "exploring": "tries a batch size to learn what it costs",
    "sampling": "runs the batch size that looks cheapest",
    "concurrent": "runs the best batch size so far, while another trial explores",
    "unbounded": "runs the best batch size so far with no cost limit",
    "baseline": "measures the default",
    "crashed": "every trial so far has crashed",
    "stuck": "no batch size is left to run",
    "unreadable": "the job cannot be read",
    "paused": "runs as before Zeus, until it is resumed",
}
UNREADABLE: Json = {
    **dict.fromkeys(("owner", "paused", "gpu_model", "last_run_at", "last_end", "failures", "failing")),
    "phase_text": PHASES["unreadable"],
    "state": "failing",
}


def shown_phase(brief: Mapping[str, Any]) -> str:
    """The phase of a job as people see it. One whose every trial crashed has learnt nothing yet, whatever runs next.

    >>> shown_phase({"phase": "sampling", "endings": {"crashed": 2}}), shown_phase({"phase": "new", "endings": {}})
    ('crashed', 'new')
    """
    if brief.get("paused"):  # older services send none
        return "paused"
    endings = set(brief["endings"])
    crashed = "crashed" in endings and endings <= {"crashed", "lost", "open"}
    return "crashed" if crashed and brief["phase"] != "stuck" else str(brief["phase"])


def state_of(brief: Mapping[str, Any]) -> str:
    """Whether a job is running, failing, losing, new or ok: the first of these that holds.

    >>> state_of({"running": [], "failing": False, "saving": None, "trials": 0})
    'new'
    """
    saving = brief["saving"]
    if brief["running"]:
        return "running"
    if brief["failing"]:
        return "failing"
    if saving is not None and saving["difference_seen"] and saving["joules"] < 0:
        return "losing"
    return "ok" if brief["trials"] else "new"


def standing(report: JobReport, brief: Json) -> Json:
    """The fields of a brief that say how a job stands. `brief` holds its other fields."""
    job, trials, recurrences = report.job, report.trials, report.ledger.recurrences
    ends = [kept.trial.ending for kept in trials if kept.trial.ending is not Ending.OPEN]
    is_failed = bool(recurrences) and recurrences[-1].end is RecurrenceEnd.FAILED
    in_a_row = len(ends) >= IN_A_ROW and all(one in FAILED for one in ends[-IN_A_ROW:])
    told: Json = {
        "owner": job.owner,
        "paused": bool(job.paused_by),
        "gpu_model": None if report.gpus is None else report.gpus.label,
        "last_run_at": max((kept.changed_at for kept in trials), default=None),
        "last_end": ends[-1].value if ends else None,
        "failures": sum(one in FAILED for one in ends[-LATELY:]),
        "failing": is_failed or in_a_row,
    }
    phase = shown_phase({**brief, **told})
    return {**told, "phase_text": PHASES.get(phase, phase), "state": state_of({**brief, **told})}


def watts_of(kept: Kept) -> float | None:
    """The mean power of a running trial in its last epoch, or of all of it; None if it is not known."""
    told = kept.told
    if told is None:
        return None
    last = told.curve[-1] if told.curve else None
    joules, seconds = (told.joules, told.seconds) if last is None else (last.joules, last.seconds)
    return joules / seconds if joules is not None and seconds > 0 else None


def origin_json(kept: Kept) -> Json:
    """Who runs a trial, and on which host."""
    return {name: None if kept.origin is None else getattr(kept.origin, name) or None for name in ("user", "host")}


def curve_json(kept: Kept) -> list[Json]:
    """The epochs of a trial, one by one."""
    names = ("metric", "joules", "seconds", "limit_watts")
    return [_point(one, names) for one in (() if kept.told is None else kept.told.curve)]


def _point(one: EpochPoint, names: tuple[str, ...]) -> Json:
    return {"epoch": one.number, **{name: getattr(one, name) for name in names}}
