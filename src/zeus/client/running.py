"""The trial, as the training script sees it. If the store or the service fails, the training continues."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from zeus.client.api import RENEW_SECONDS
from zeus.client.catalog import open_jobs
from zeus.client.profile_folder import ProfileFolder
from zeus.client.recurring import RecurringJob
from zeus.cost import ONE, Use, fits
from zeus.device.clock import REAL
from zeus.device.gpu import Clock, Ticker
from zeus.errors import InputError
from zeus.files import write_whole
from zeus.job import Ending, JobSpec, Outcome, Trial
from zeus.job.wire import dumps, to_json
from zeus.launcher_env import LauncherEnv
from zeus.profile import PowerProfile, ProfileKey
from zeus.trial.engine import AskPolicy
from zeus.trial.knowledge import Knowledge

log = logging.getLogger(__name__)

T = TypeVar("T")
NOTICEABLE = 0.05  # relative change of an epoch's use from which it is reported again


class RunningTrial:
    """One open trial. No method raises: Zeus warns once about a store that does not answer, and asks it again later.

    Args:
        job_id: Id of the job.
        number: Number of the trial.
        find: Finds the job when it is first needed. If that fails, it is called again only after each epoch and at
            the end, because waiting for an unreachable store may take minutes.
        cost_limit: What the trial may cost when the policy cannot be asked.
        outcome_file: File in which the launcher reads what was used so far, and what the store could not be told.
        profile_folder: Where the power profile is left instead of in the store, under `zeus profile`.
    """

    def __init__(
        self,
        job_id: str,
        number: int,
        find: Callable[[], RecurringJob],
        *,
        cost_limit: float | None = None,
        outcome_file: str | None = None,
        profile_folder: ProfileFolder | None = None,
    ) -> None:
        self.job_id, self.number = job_id, number
        self._find = find
        self._job: RecurringJob | None = None
        self._trial: Trial | None = None
        self._limit = cost_limit
        self._file = Path(outcome_file) if outcome_file else None
        self._folder = profile_folder
        self._warned = False
        self._profiled: Use | None = None
        self._so_far: Outcome | None = None
        self._renewing: Ticker | None = None

    @property
    def spec(self) -> JobSpec | None:
        """The job's spec, or None if the store does not answer."""
        return self._try("looking up its job", lambda job: job.spec)

    @property
    def trial(self) -> Trial | None:
        """The trial as it was opened, or None if the store does not answer."""
        if self._trial is None:
            self._trial = self._try("looking up the trial", lambda job: job.trial(self.number))
        return self._trial

    def hold(self, clock: Clock = REAL) -> None:
        """Renew the lease until the trial ends. Call this only if no launcher renews it."""
        self._renewing = clock.every(RENEW_SECONDS, self._renew)

    def knowledge(self) -> Knowledge:
        """What earlier trials tell about its epochs; empty if the store does not answer."""
        trial = self.trial
        found = None if trial is None else self._try("looking up earlier trials", lambda job: job.knowledge(trial))
        return found or Knowledge()

    def so_far(self) -> Outcome | None:
        """What the trial had used when it last reported; None if it has not, or the store does not answer."""
        return self._try("looking up what it has used", lambda job: job.so_far(self.number))

    def answer(self, question: AskPolicy) -> bool:
        """Whether to go on: the policy decides, or the cost limit if the policy cannot be asked."""
        self._so_far = question.so_far
        self._write(question.so_far)
        ask = question.so_far, question.cost
        go_on = self._try("asking whether to go on", lambda job: job.progress(self.number, *ask), again=True)
        return fits(question.cost, self._limit) if go_on is None else go_on

    def tell_epoch(self, use: Use) -> None:
        """Report what an epoch uses: when it is first known, and when it has changed noticeably."""
        sound = all(math.isfinite(value) and value > 0 for value in (use.joules, use.seconds))
        if not sound or is_alike(self._profiled, use):
            return
        trial = self.trial
        if trial is None:
            return

        def tell(job: RecurringJob) -> bool:
            job.profiled(trial.batch_size, trial.ask.gpus, joules=use.joules, seconds=use.seconds)
            return True

        if self._try("reporting what an epoch uses", tell):
            self._profiled = use

    def tell(self, outcome: Outcome) -> None:
        """Report how the trial ended. If the store cannot be reached, leave the outcome in the outcome file."""
        self.let_go()

        def tell(job: RecurringJob) -> bool:
            try:
                job.tell(self.number, outcome)
            except InputError as refused:  # the store answered: it holds another outcome, or no such job
                self._warn("reporting its end", refused)
            return True

        if not self._try("reporting its end", tell, again=True):
            self.leave(outcome)
        elif self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink(missing_ok=True)  # the store knows more than it now

    def end(self, outcome: Outcome | None, *, crashed: bool) -> None:
        """Report that training failed. If it is not known to have crashed, a launcher finds out from the exit code."""
        outcome = outcome or Outcome(ending=Ending.CRASHED if crashed else Ending.LOST)
        self.leave(outcome) if self._file is not None and outcome.ending is Ending.LOST else self.tell(outcome)

    def keep_log(self, text: str) -> None:
        """Keep a last text about the trial, such as a traceback, as its log."""

        def keep(job: RecurringJob) -> bool:
            job.keep_log(self.number, text, is_last=True)
            return True

        self._try("sending its log", keep)

    def leave(self, outcome: Outcome) -> None:
        """Leave the outcome in the file that a launcher reads. For LOST, the launcher adds how the process ended."""
        self.let_go()
        if (failed := self._write(outcome)) is not None:
            log.warning("the outcome %s could not be written to %s: %s", outcome, self._file, failed)

    def _write(self, outcome: Outcome) -> OSError | None:
        """Show the launcher, which is on this machine, an outcome. Returns why it cannot be written."""
        try:
            if self._file is not None:
                write_whole(self._file, dumps(to_json(outcome)))
        except OSError as failed:
            return failed
        return None

    def let_go(self) -> None:
        """Stop renewing the lease."""
        if self._renewing is not None:
            renewing, self._renewing = self._renewing, None
            renewing.stop()

    def get(self, key: ProfileKey) -> PowerProfile | None:
        return self._try("looking up the power profile", lambda job: job.get(key))

    def near(self, key: ProfileKey) -> PowerProfile | None:
        return self._try("looking up power profiles", lambda job: job.near(key))

    def put(self, key: ProfileKey, profile: PowerProfile) -> None:
        if self._folder is not None:
            self._folder.put_profile(key, profile)
            return
        self._try("storing the power profile", lambda job: job.put(key, profile))

    # ------------------------------------------------------------------ the other side

    def _renew(self) -> None:
        self._try("renewing its lease", lambda job: job.renew(self.number, self._so_far))

    def _try(self, what: str, say: Callable[[RecurringJob], T], again: bool = False) -> T | None:
        if self._job is None and self._warned and not again:
            return None
        try:
            self._job = self._job or self._find()
            return say(self._job)
        except Exception as failed:  # a database that is unreachable or not installed, the network, the disk
            self._warn(what, failed)
            return None

    def _warn(self, what: str, failed: Exception) -> None:
        level = logging.DEBUG if self._warned else logging.WARNING
        self._warned = True
        continues = "training continues, although %s failed (job %r, trial %s): %s"
        log.log(level, continues, what, self.job_id, self.number, failed)


def launched(orders: LauncherEnv) -> RunningTrial | None:
    """The trial that a launcher has opened for this script, or None."""
    if orders.job_id is None or orders.trial is None:
        return None
    job_id, number = orders.job_id, orders.trial
    jobs = cache(open_jobs)  # opened once, so that the script waits only once for an unreachable store

    def find() -> RecurringJob:
        job = RecurringJob.find(jobs(), job_id)
        if orders.trial_id is not None:
            job.bind_trial_id(number, orders.trial_id)
        return job

    return RunningTrial(
        job_id,
        number,
        find,
        cost_limit=orders.cost_limit,
        outcome_file=orders.outcome_file,
        profile_folder=ProfileFolder.of(orders),
    )


def start_terms(orders: LauncherEnv) -> dict[str, Any]:
    """The terms of a trial, by name, that its launcher sets for each start: what earlier starts used, and the split.

    >>> start_terms(LauncherEnv(spent_seconds=3.0, per_device_batch_size=16, accumulation_steps=4))
    {'before': Use(joules=nan, seconds=3.0), 'earlier': Use(joules=nan, seconds=3.0), 'micro_batch_size': 16}
    """
    seconds, joules = orders.spent_seconds or 0.0, orders.spent_joules
    before = Use((math.nan if seconds else 0.0) if joules is None else joules, seconds)
    return {
        "before": before,
        "earlier": before,
        "micro_batch_size": orders.per_device_batch_size if (orders.accumulation_steps or 1) > 1 else None,
    }


def is_alike(before: Use | None, now: Use) -> bool:
    """Whether an epoch's use has changed too little to be reported again."""
    return before is not None and abs(now / before - ONE).within(NOTICEABLE)
