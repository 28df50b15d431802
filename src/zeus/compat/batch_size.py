"""The batch size optimizer's exceptions and messages, under the names of the existing package."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.errors import InputError, StoreError, ZeusError
from zeus.job import JobSpec  # noqa: F401 - scripts import it from here

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
