"""The batch size optimizer's exceptions, routes and messages, under the names of the existing package."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.errors import InputError, StoreError, ZeusError
from zeus.job import JobSpec

__all__ = [
    "DELETE_JOB_URL",
    "GET_NEXT_BATCH_SIZE_URL",
    "REGISTER_JOB_URL",
    "REPORT_END_URL",
    "REPORT_RESULT_URL",
    "JobSpec",
    "ReportResponse",
    "TrainingResult",
    "TrialId",
    "ZeusBSOBadOperationError",
    "ZeusBSOConfigError",
    "ZeusBSOOperationOrderError",
    "ZeusBSORuntimError",
    "ZeusBSOTrainFailError",
]

REGISTER_JOB_URL = DELETE_JOB_URL = "/jobs"
GET_NEXT_BATCH_SIZE_URL = "/jobs/batch_size"
REPORT_RESULT_URL = "/report"
REPORT_END_URL = "/trials"

ZeusBSOConfigError = ZeusBSOOperationOrderError = ZeusBSOBadOperationError = InputError
ZeusBSORuntimError = StoreError


class ZeusBSOTrainFailError(ZeusError):
    """Never raised: here a trial that is stopped sets `training_finished`, and the script ends by itself."""


@dataclass(frozen=True)
class TrialId:
    """The answer of `GET /jobs/batch_size`."""

    job_id: str
    batch_size: int
    trial_number: int


@dataclass(frozen=True)
class TrainingResult(TrialId):
    """The body of `POST /report`: time and energy since the trial began."""

    time: float
    energy: float
    metric: float
    current_epoch: int


@dataclass(frozen=True)
class ReportResponse:
    """The answer of `POST /report`."""

    stop_train: bool
    converged: bool
    message: str
