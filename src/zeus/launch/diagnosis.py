"""What the trials of a recurrence say about the script and its target: a warning, or the end of the run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from zeus.client.api import JobsApi
from zeus.client.recurring import RecurringJob
from zeus.errors import LaunchError, ZeusError
from zeus.job import Ending, Trial
from zeus.launch.crash_cause import is_scripts_own
from zeus.launch.progress import FinishedTrial
from zeus.launch.recurrence import FULL_MISSES

log = logging.getLogger(__name__)


class Diagnosis:
    """Looks at the ended trials of each recurrence of one run.

    Args:
        jobs: Where the job is.
        job: The job.
        ran: The trials that ran here, by number.
    """

    def __init__(self, jobs: JobsApi, job: RecurringJob, ran: Mapping[int, FinishedTrial]) -> None:
        self._jobs, self._job, self._ran = jobs, job, ran
        self._worked_here: set[int] = set()  # batch sizes that completed an epoch in this run
        self.excused: set[int] = set()  # trials whose crash the store does not hold against their batch size

    def after(self, tried: Sequence[Trial]) -> None:
        """The last of these trials of a recurrence has ended: warn about the target, and stop if the script fails.

        Raises:
            LaunchError: The script itself is at fault.
        """
        last = tried[-1]
        if last.outcome is not None and last.outcome.epochs:
            self._worked_here.add(last.batch_size)
        self._require_metric(last)
        self._doubt_target(tried)
        self.blame(tried)

    def blame(self, tried: Sequence[Trial], nothing_left: bool = False) -> None:
        """Stop if the script crashes at every batch size. The crashes are then not held against the sizes.

        Raises:
            LaunchError: The script itself is at fault.
        """
        if any(one.ending is not Ending.CRASHED or one.number not in self._ran for one in tried):
            return
        crashes = [self._ran[one.number].crash(one.batch_size) for one in tried]
        if not is_scripts_own(crashes, (), nothing_left=nothing_left):  # avoids asking the store for the job's past
            return
        job_id = self._job.spec.id
        if not is_scripts_own(crashes, self._worked(), nothing_left=nothing_left):
            return
        try:
            numbers = [one.number for one in tried]
            self._job.excuse(numbers)
            self.excused.update(numbers)
            now = "Fix it and run it again: no batch size was ruled out."
        except ZeusError as refused:
            now = (
                f"Fix it, then allow the batch sizes again with `zeus jobs reset {job_id} --batch-size N`. The store "
                f"did not record that they are not at fault: {refused}"
            )
        raise LaunchError(
            f"job {job_id!r}: the command crashed before its first epoch at every batch size tried, "
            f"{[one.batch_size for one in crashes]}, and did not run out of memory. The command itself fails. {now} "
            f"Its output is in {self._ran[tried[-1].number].log}."
        )

    def _require_metric(self, last: Trial) -> None:
        """Stop if a whole training told no metric: other batch sizes would take as long and tell as little."""
        outcome, ended = last.outcome, last.ending is Ending.NOT_CONVERGED
        if ended and last.number in self._ran and outcome is not None and outcome.epochs and outcome.metric is None:
            raise LaunchError(
                f"trial {last.number}: the script trained to its end and reported no metric, so nobody can tell "
                "whether it reached the target. Let it call `report_metric` (or `on_evaluate`) after each "
                f"evaluation. Its output is in {self._ran[last.number].log}."
            )

    def _doubt_target(self, tried: Sequence[Trial]) -> None:
        """Warn if the last of these trials says that the target may be wrong."""
        spec, last = self._job.spec, tried[-1]
        if last.number not in self._ran or last.outcome is None:
            return
        metric, at_once = last.outcome.metric, last.ending is Ending.CONVERGED and last.outcome.epochs <= 1
        if at_once and metric is not None and self._is_first_metric(last):
            log.warning(
                "job %r: the first metric that was ever reported, %g, already reaches the target (metric %s), so the "
                "training ended after its first epoch. higher_is_better is %s: if that is wrong, set it to %s. "
                "Otherwise check target_metric, and where the metric is read from.",
                spec.id,
                metric,
                spec.target,
                str(spec.higher_is_better_metric).lower(),
                str(not spec.higher_is_better_metric).lower(),
            )
        misses = [one.batch_size for one in tried if one.ending is Ending.NOT_CONVERGED]
        is_default = last.ending is Ending.NOT_CONVERGED and last.batch_size == spec.default_batch_size
        if is_default and misses.count(last.batch_size) == 1 and not self.ever_converged():
            log.warning(
                "job %r: the default batch size %d missed the target (metric %s): its last metric was %s. No trial of "
                "this job has reached it yet. A recurrence runs at most %d such trials until one does. Check "
                "target_metric, higher_is_better and max_epochs.",
                spec.id,
                last.batch_size,
                spec.target,
                "not reported" if last.outcome.metric is None else f"{last.outcome.metric:g}",
                FULL_MISSES,
            )

    # ------------------------------------------------------------------ the past of the job

    def _past(self) -> list[dict[str, Any]] | None:
        """All trials of the job; None if the store does not answer."""
        try:
            return self._jobs.trials(self._job.spec.id)
        except ZeusError:
            return None

    def opened(self) -> set[int]:
        """The numbers of all trials until now; none if the store does not answer, because then none is continued."""
        return {one["number"] for one in self._past() or ()}

    def ever_converged(self) -> bool:
        """Whether a trial of the job has reached the target. True if the store does not answer."""
        past = self._past()
        return past is None or any(one["ending"] == Ending.CONVERGED for one in past)

    def _is_first_metric(self, trial: Trial) -> bool:
        """Whether no other trial of the job has reported a metric. False if the store does not answer."""
        past = self._past()
        return past is not None and all(one["metric"] is None for one in past if one["number"] != trial.number)

    def _worked(self) -> set[int]:
        """Batch sizes that ever completed an epoch: of the job, or of this run alone if the job cannot be read.

        A size that only an unread past knows to work is then missing. That may excuse the crash of a size that is at
        fault, which costs one more crash; the other mistake would rule out good sizes for a fault of the script.
        """
        past = self._past()
        return self._worked_here if past is None else {one["batch_size"] for one in past if one["epochs"]}
