"""A trial of a script that uses Zeus itself. It gets its orders in ZEUS_*, and measures, profiles, stops and reports.

    start ──▶ wait, renewing ──▶ ended ──▶ the store has its outcome ──▶ done
                                              └── it has not: read the outcome file, or the exit code

The launcher renews the lease, and finds out how a trial ended that did not report it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zeus.client.recurring import RecurringJob
from zeus.client.running import RunningTrial
from zeus.device.clock import REAL
from zeus.device.gpu import Clock
from zeus.errors import InputError, LaunchError
from zeus.job import Ending, Outcome, Trial, replace
from zeus.job.wire import from_json, loads
from zeus.launch.process.child import Child
from zeus.launch.progress import FinishedTrial, Live

LOOK_SECONDS = 1.0  # how often the file with the trial's progress is read


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRunner:
    """Runs the trials of one job whose script reports by itself."""

    job: RecurringJob
    on_live: Callable[[Live], None] = lambda live: None
    clock: Clock = REAL  # for lease renewals

    def run(self, trial: Trial, command: list[str], environ: Mapping[str, str], log: Path) -> FinishedTrial:
        file = outcome_file(log)
        file.unlink(missing_ok=True)
        running = RunningTrial(self.job.spec.id, trial.number, lambda: self.job)
        running.hold(self.clock)
        try:
            with Child(command, environ, log) as child:
                shown = None
                while (status := child.wait(LOOK_SECONDS)) is None:
                    if (so_far := _read(file)) is not None and so_far != shown:
                        shown = so_far
                        self.on_live(Live(trial, so_far, so_far.limit_watts))
        except BaseException:  # keep what the script left of its open epoch
            if (left := _read(file)) is not None:
                with contextlib.suppress(Exception):
                    self.job.renew(trial.number, replace(left, ending=Ending.LOST, next_epoch_cost=None))
            raise
        finally:
            running.let_go()
        outcome = self._outcome(trial, child, status, file)
        end = child.end_of_output if outcome.ending is Ending.CRASHED else ""
        return FinishedTrial(outcome, log, None, status, end)

    def _outcome(self, trial: Trial, child: Child, status: int, file: Path) -> Outcome:
        stored = self.job.trial(trial.number)
        if stored.ended is not None and stored.outcome is not None:
            return stored.outcome
        left = _read(file)
        if left is not None and left.ending is not Ending.LOST:  # the script could not reach the store
            return left
        child.check(status)
        if status:
            known = [one for one in (left, self.job.so_far(trial.number)) if one is not None]
            # If a launcher such as torchrun has started the script again, an earlier start may have left the file.
            so_far = max(known, key=lambda one: one.seconds, default=Outcome(ending=Ending.LOST))
            return replace(so_far, ending=Ending.CRASHED)
        if left is not None and left.epochs:  # the script left its loop before the target was reached
            return replace(left, ending=Ending.NOT_CONVERGED)
        raise LaunchError(
            f"trial {trial.number}: the command succeeded, but reported no outcome. Let the script train with "
            "`for epoch in ZeusDataLoader(...).epochs()` or with the callbacks. To leave it unmodified, add a "
            f"[metrics] table to the job file. Its output is in {child.log}."
        )


def outcome_file(log: Path) -> Path:
    """File where the trial of this log leaves its outcome if it cannot reach the store (ZEUS_OUTCOME_FILE)."""
    return log.with_suffix(".outcome.json")


def _read(file: Path) -> Outcome | None:
    with contextlib.suppress(OSError, InputError):
        return from_json(loads(file.read_text()), Outcome)
    return None
