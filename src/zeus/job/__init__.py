"""A recurring job and the facts stored about it. `zeus.ledger.ledger` adds them up."""

from zeus.job.spec import JobSpec, Target
from zeus.job.trial import (
    MAX_TRIES,
    Ask,
    Decision,
    Ending,
    EpochPoint,
    Event,
    Gpus,
    Kind,
    Origin,
    Outcome,
    Pardoned,
    Phase,
    Profiled,
    Trial,
    TrialRecord,
    UsageSegment,
    history,
)
from zeus.job.value import Checked, replace

__all__ = [
    "MAX_TRIES",
    "Ask",
    "Checked",
    "Decision",
    "Ending",
    "EpochPoint",
    "Event",
    "Gpus",
    "JobSpec",
    "Kind",
    "Origin",
    "Outcome",
    "Pardoned",
    "Phase",
    "Profiled",
    "Target",
    "Trial",
    "TrialRecord",
    "UsageSegment",
    "history",
    "replace",
]
