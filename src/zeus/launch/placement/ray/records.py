"""What Ray says about a job, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from zeus.exit_codes import DONE, FAILED

SUCCEEDED, STOPPED = "SUCCEEDED", "STOPPED"
FINAL = frozenset({SUCCEEDED, STOPPED, "FAILED"})
ENDED_BY_TERM = 128 + 15


@dataclass(frozen=True, slots=True, kw_only=True)
class RayJobState:
    """A job of Ray."""

    id: str
    state: str
    driver_exit_code: int | None = None
    message: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in FINAL

    @property
    def status(self) -> int:
        """The exit status of the `zeus run` on the node, as a shell says it.

        >>> RayJobState(id="zeus-asr-5f0c", state="FAILED", driver_exit_code=3).status
        3
        >>> RayJobState(id="zeus-asr-5f0c", state="STOPPED").status
        143
        """
        if self.state == SUCCEEDED:
            return DONE
        return self.driver_exit_code or (ENDED_BY_TERM if self.state == STOPPED else FAILED)

    @property
    def sentence(self) -> str:
        """In words, with the reason if Ray ended the job and not the run.

        >>> RayJobState(id="zeus-asr-5f0c", state="FAILED", message="its node failed").sentence
        'job zeus-asr-5f0c: failed, exit code 1: its node failed'
        """
        words = self.state.lower()
        if self.is_final and self.state != SUCCEEDED:
            words += f", exit code {self.status}"
        if self.state == "FAILED" and self.driver_exit_code is None and self.message:
            words += f": {self.message.splitlines()[0]}"
        return f"job {self.id}: {words}"
