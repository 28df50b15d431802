"""A job as its store has it, for people and programs: `zeus jobs`, `zeus run`, the service and the page.

    store ──▶ JobReport (job_report) ──▶ all about it (full), or one row of a list (brief)
                                                                 ▲
    store ──▶ digests of many jobs (digests) ────────────────────┘

The numbers are the ledger's (`zeus.ledger.ledger`): what was used, what the default would have used, what was saved.
"""

from __future__ import annotations

from zeus.client.report.brief import brief, digest_of, unreadable
from zeus.client.report.digests import Digests
from zeus.client.report.full import full, full_without_store, run_json
from zeus.client.report.job_report import report
from zeus.client.report.json import profiles_json, spec_json, trial_json

__all__ = [
    "Digests",
    "brief",
    "digest_of",
    "full",
    "full_without_store",
    "profiles_json",
    "report",
    "run_json",
    "spec_json",
    "trial_json",
    "unreadable",
]
