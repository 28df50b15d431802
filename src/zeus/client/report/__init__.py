"""A job as its store has it, for people and programs: `zeus jobs`, `zeus run`, the service and the page.

    store ──▶ JobReport (job_report) ──▶ JSON (json): what every command, route and file prints

The numbers are the ledger's (`zeus.ledger.ledger`): what was used, what the default would have used, what was saved.
"""

from __future__ import annotations

from zeus.client.report.briefs import each_brief
from zeus.client.report.job_report import report
from zeus.client.report.json import (
    brief,
    brief_of,
    full,
    full_without_store,
    profiles_json,
    run_json,
    spec_json,
    trial_json,
    unreadable,
)

__all__ = [
    "brief",
    "brief_of",
    "each_brief",
    "full",
    "full_without_store",
    "profiles_json",
    "report",
    "run_json",
    "spec_json",
    "trial_json",
    "unreadable",
]
