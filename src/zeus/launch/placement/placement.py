"""Where else `zeus run` can run, and what a cluster says about a job there. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from zeus.errors import DONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A job of a cluster, or one task of an array of jobs.

    Args:
        id: Its id there.
        state: As the cluster calls it.
        exit_code: That of its `zeus run`, as a shell says it. None: it has not ended.
        may_return: Whether the cluster may start it again although it has ended.
        reason: Why it waits, or why the cluster ended it.
        nodes: Where it runs.
        restarts: How often it was started again.
        log: The file with its output.
        comment: What was noted about it there.
    """

    id: str
    state: str
    exit_code: int | None = None
    may_return: bool = False
    reason: str = ""
    nodes: str = ""
    restarts: int = 0
    log: str | None = None
    comment: str = ""

    @property
    def sentence(self) -> str:
        """In words.

        >>> Task(id="7", state="PENDING", reason="Resources").sentence
        'job 7: pending (Resources)'
        >>> Task(id="7_2", state="NODE_FAIL", exit_code=1, restarts=1).sentence
        'job 7_2: node fail, exit code 1, started again once'
        """
        words = self.state.lower().replace("_", " ")
        if self.exit_code is None and self.nodes:
            words += f" on {self.nodes}"
        if self.exit_code:
            words += f", exit code {self.exit_code}"
        if self.reason:
            words += f" ({self.reason})"
        if self.restarts:
            words += f", started again {'once' if self.restarts == 1 else f'{self.restarts} times'}"
        if self.exit_code is not None and self.comment:
            words += f"; {self.comment}"
        return f"job {self.id}: {words}"


def exit_code_of(tasks: Sequence[Task]) -> int:
    """The exit code of several tasks that have ended: that of the first that failed."""
    return next((one.exit_code for one in tasks if one.exit_code), DONE)


def is_over(tasks: Sequence[Task], before: Sequence[Task]) -> bool:
    """Whether all tasks have ended. One that may return counts only if it was the same at the look before."""
    return all(one.exit_code is not None for one in tasks) and (
        tasks == before or not any(one.may_return for one in tasks)
    )


class Placement(ABC):
    """Where `zeus run` can run a job, other than here. It is made from a submission, which it checks.

    Raises:
        InputError: The job cannot be run there as it is submitted.
    """

    @abstractmethod
    def plan(self, as_json: bool) -> str:
        """What this place would be given, as text."""


class ClusterPlacement(Placement):
    """A place that jobs are submitted to."""

    title: ClassVar[str]
    cancels: ClassVar[str]  # the command that cancels a job, without its id
    facts: ClassVar[Sequence[str]]  # what the JSON of a task has
    shows_log: ClassVar[bool] = False  # whether a look shows what the run prints

    @abstractmethod
    def submit(self) -> str:
        """Submit the job. Returns its id there."""

    @abstractmethod
    def look(self, job_id: str, show: Callable[[str], None]) -> list[Task]:
        """The tasks of a job.

        Args:
            job_id: Its id.
            show: Called with what the run has printed since the last look, if this cluster can tell.

        Raises:
            LaunchError: The cluster does not answer.
        """

    @property
    def details(self) -> Mapping[str, Any]:
        """What the JSON of a job that was just submitted has beside its id."""
        return {}
