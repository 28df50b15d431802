"""A trial of a script that uses Zeus itself: told everything in ZEUS_*, it measures, profiles, stops and reports.

start ──▶ wait, renewing ──▶ ended ──▶ told to the store ──────────────────────▶ done
                                         └── not told: by its outcome file, or by its exit code
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from zeus.errors import InputError, LaunchError
from zeus.job import Ending, Outcome, Trial
from zeus.launch.child import Child
from zeus.launch.report import Live, Ran
from zeus.optimizer.batch_size.verbs import RENEW_SECONDS, RecurringJob
from zeus.wire import from_json, loads

LOOK_SECONDS = 1.0  # how often what it has told is looked up, to be shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRunner:
    """Runs the trials of one job whose script reports by itself."""

    job: RecurringJob
    on_live: Callable[[Live], None] = lambda live: None

    def run(self, trial: Trial, command: list[str], environ: Mapping[str, str], log: Path) -> Ran:
        """Run one trial to its end."""
        file = outcome_file(log)
        file.unlink(missing_ok=True)
        with Child(command, environ, log) as child:
            renew_at, shown = time.monotonic() + RENEW_SECONDS, None
            while (status := child.wait(LOOK_SECONDS)) is None:
                if time.monotonic() >= renew_at:
                    self.job.renew(trial.number)
                    renew_at = time.monotonic() + RENEW_SECONDS
                if (so_far := self.job.so_far(trial.number)) is not None and so_far != shown:
                    shown = so_far
                    self.on_live(Live(trial, so_far))
        outcome = self._outcome(trial, status, file, log)
        last = tuple(child.last_lines()) if outcome.ending is Ending.CRASHED else ()
        return Ran(outcome, log, None, status, last)

    def _outcome(self, trial: Trial, status: int, file: Path, log: Path) -> Outcome:
        told = self.job.trial(trial.number)
        if told.ended is not None and told.outcome is not None:
            return told.outcome
        left = _read(file)
        if left is not None and left.ending is not Ending.LOST:  # the store could not be told then
            return left
        if status:
            so_far = left or self.job.so_far(trial.number) or Outcome(ending=Ending.LOST)
            return replace(so_far, ending=Ending.CRASHED)
        if left is not None and left.epochs:  # the script left its loop by itself, before the target
            return replace(left, ending=Ending.NOT_CONVERGED)
        raise LaunchError(
            f"trial {trial.number} ended well, but nobody told how: does the script train with "
            "`for epoch in ZeusDataLoader(...).epochs()`, or the callbacks? If it is to stay as it is, add a [metrics] "
            f"table to the job file. Its output is in {log}."
        )


def outcome_file(log: Path) -> Path:
    """Where the trial of this log leaves its outcome when the store cannot be told: ZEUS_OUTCOME_FILE."""
    return log.with_suffix(".outcome.json")


def _read(file: Path) -> Outcome | None:
    with contextlib.suppress(OSError, InputError):
        return from_json(loads(file.read_text()), Outcome)
    return None
