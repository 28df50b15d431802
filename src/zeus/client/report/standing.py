"""How a job stands, in plain words: what its phase means, and whether it runs, fails or loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeus.client.report.job_report import JobReport
from zeus.job import Ending
from zeus.ledger.ledger import RecurrenceEnd
from zeus.ledger.saving_text import is_seen

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
    **dict.fromkeys(("owner", "paused", "gpu_model", "last_run_at", "last_end", "failures", "failing", "max_epochs")),
    "phase_text": PHASES["unreadable"],
    "state": "failing",
}


def why_failing(brief: Mapping[str, Any]) -> str:
    """Why a job counts as failing, as a sentence.

    >>> why_failing({"failures": 3, "last_end": "crashed"}), why_failing({"failures": 0, "last_end": "not_converged"})
    ('3 of its last 10 trials crashed or were lost', 'its last recurrence did not reach the target')
    """
    if brief["failures"] and brief["last_end"] in FAILED:
        return f"{brief['failures']} of its last {LATELY} trials crashed or were lost"
    return "its last recurrence did not reach the target"


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

    >>> state_of({"phase": "new", "running": [], "failing": False, "saving": None, "trials": 0})
    'new'
    """
    saving = brief["saving"]
    if brief["phase"] == "unreadable":
        return "failing"
    loses = saving is not None and is_loss(saving["joules"], saving["joules_error"], saving["compared_joules"])
    return state(running=bool(brief["running"]), failing=brief["failing"], losing=loses, trials=brief["trials"])


def state(*, running: bool, failing: bool, losing: bool, trials: int) -> str:
    """The same, from what decides it."""
    return "running" if running else "failing" if failing else "losing" if losing else "ok" if trials else "new"


def is_loss(joules: float, error: float, compared: float) -> bool:
    """Whether a saving of so many joules is surely a loss."""
    return joules < 0 and is_seen(joules, error, of=compared)


def standing(report: JobReport, brief: Json) -> Json:
    """The fields of a brief that say how a job stands. `brief` holds its other fields.

    `state` depends on what runs when the brief is read, and is filled in then (`state_of`).
    """
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
    return {**told, "phase_text": PHASES.get(phase, phase), "state": ""}
