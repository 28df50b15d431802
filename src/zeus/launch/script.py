"""A trial of a script that uses Zeus itself: told everything in ZEUS_*, it measures, profiles, stops and reports.

    start ──▶ wait, renewing ──▶ ended ──▶ told to the store ──▶ done
                                              └── not told: by its outcome file, or by its exit code

The launcher only looks on, and finds out how a trial ended of which nobody told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.errors import InputError, LaunchError
from zeus.job import Ending, Outcome, Trial
from zeus.job.wire import from_json, loads
from zeus.jobs.api import RecurringJob
from zeus.jobs.running import RunningTrial
from zeus.launch.process.child import Child
from zeus.launch.progress import FinishedTrial, Live

LOOK_SECONDS = 1.0  # how often what it has told is looked up, to be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRunner:
    """Runs the trials of one job whose script reports by itself."""

    job: RecurringJob
    on_live: Callable[[Live], None] = lambda live: None
    clock: Clock = REAL  # that leases are renewed by

    def run(self, trial: Trial, command: list[str], environ: Mapping[str, str], log: Path) -> FinishedTrial:
        """Run one trial to its end."""
        file = outcome_file(log)
        file.unlink(missing_ok=True)
        running = RunningTrial(self.job.spec.id, trial.number, lambda: self.job)
        running.hold(self.clock)
        try:
            with Child(command, environ, log) as child:
                shown = None
                while (status := child.wait(LOOK_SECONDS)) is None:
                    if (so_far := self._so_far(trial)) is not None and so_far != shown:
                        shown = so_far
                        self.on_live(Live(trial, so_far))
        except BaseException:  # what the script left of its open epoch outlives it
            if (left := _read(file)) is not None:
                with contextlib.suppress(Exception):
                    self.job.renew(trial.number, replace(left, ending=Ending.LOST, next_epoch_cost=None))
            raise
        finally:
            running.let_go()
        outcome = self._outcome(trial, child, status, file)
        end = child.end_of_output if outcome.ending is Ending.CRASHED else ""
        return FinishedTrial(outcome, log, None, status, end)

    def _so_far(self, trial: Trial) -> Outcome | None:
        """Only to be shown: a store that does not answer is no reason to end a training."""
        with contextlib.suppress(Exception):
            return self.job.so_far(trial.number)
        return None

    def _outcome(self, trial: Trial, child: Child, status: int, file: Path) -> Outcome:
        told = self.job.trial(trial.number)
        if told.ended is not None and told.outcome is not None:
            return told.outcome
        left = _read(file)
        if left is not None and left.ending is not Ending.LOST:  # the store could not be told then
            return left
        child.check(status)
        if status:
            so_far = left or self.job.so_far(trial.number) or Outcome(ending=Ending.LOST)
            return replace(so_far, ending=Ending.CRASHED)
        if left is not None and left.epochs:  # the script left its loop by itself, before the target
            return replace(left, ending=Ending.NOT_CONVERGED)
        raise LaunchError(
            f"trial {trial.number} ended well, but nobody told how: does the script train with "
            "`for epoch in ZeusDataLoader(...).epochs()`, or the callbacks? If it is to stay as it is, add a [metrics] "
            f"table to the job file. Its output is in {child.log}."
        )


def outcome_file(log: Path) -> Path:
    """Where the trial of this log leaves its outcome when the store cannot be told: ZEUS_OUTCOME_FILE."""
    return log.with_suffix(".outcome.json")


def _read(file: Path) -> Outcome | None:
    with contextlib.suppress(OSError, InputError):
        return from_json(loads(file.read_text()), Outcome)
    return None
