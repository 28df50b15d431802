"""What Ray says about a job. Pure."""

from __future__ import annotations

from zeus.errors import DONE, FAILED, TERMINATED
from zeus.launch.placement.placement import Task

ENDED = {"SUCCEEDED": DONE, "STOPPED": TERMINATED, "FAILED": FAILED}


def read_job(job_id: str, state: str, run_exit_code: int | None, message: str) -> Task:
    """A job of Ray.

    Args:
        job_id: Its id.
        state: Its state.
        run_exit_code: What its `zeus run` ended with. None: it has not ended, or Ray has ended it.
        message: What Ray says about the job.
    """
    exit_code = (run_exit_code or ENDED[state]) if state in ENDED else None
    is_rays_own = state == "FAILED" and run_exit_code is None
    reason = message.splitlines()[0].rstrip(".") if is_rays_own and message else ""
    return Task(id=job_id, state=state, exit_code=exit_code, reason=reason)
