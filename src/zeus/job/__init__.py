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
    Kept,
    Kind,
    Origin,
    Outcome,
    Pardoned,
    Phase,
    Profiled,
    Stretch,
    Trial,
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
    "Kept",
    "Kind",
    "Origin",
    "Outcome",
    "Pardoned",
    "Phase",
    "Profiled",
    "Stretch",
    "Target",
    "Trial",
    "history",
    "replace",
]
