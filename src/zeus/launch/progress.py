"""Progress and result of a trial that a launcher runs, as they are shown to the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zeus.cost import Use
from zeus.job import Outcome, Trial
from zeus.launch.crash_cause import Crash
from zeus.training.micro_batch import BatchSplit

SHOWN_LINES, SHOWN_LETTERS = 15, 500


@dataclass(frozen=True, slots=True)
class Live:
    """Progress of a running trial."""

    trial: Trial
    so_far: Outcome
    limit_watts: float | None = None  # None: not known


@dataclass(frozen=True, slots=True)
class Restart:
    """A start of a trial that ran out of memory, and the split of the next start."""

    trial: Trial
    per_device: int  # samples on each GPU that did not fit
    used: Use  # by the start that failed; charged to the trial
    split: BatchSplit


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that ended: its outcome, log and exit code."""

    outcome: Outcome
    log: Path
    limit_watts: float | None = None
    exit_code: int | None = None  # None: it was not run, or Zeus ended it
    end_of_output: str = ""  # only if it crashed

    def crash(self, batch_size: int) -> Crash:
        """What is known about its crash."""
        return Crash(batch_size, self.outcome.epochs, self.exit_code, self.end_of_output)

    @property
    def last_lines(self) -> list[str]:
        """The last lines of its output, shortened, to show after a crash."""
        lines = [line.rstrip() for line in self.end_of_output.splitlines()]
        return [line if len(line) <= SHOWN_LETTERS else f"{line[:SHOWN_LETTERS]} ..." for line in lines[-SHOWN_LINES:]]


class RunView:
    """Is told what a launcher does. This one shows nothing."""

    def trial(self, trial: Trial, ran: FinishedTrial | None) -> None:
        """A trial was opened, or has ended. `ran` is None if it is open, or ended without running here."""

    def live(self, live: Live) -> None:
        """A running trial has made progress."""

    def restart(self, restart: Restart) -> None:
        """A trial ran out of memory and is started again."""
