"""How a trial that a launcher runs stands, and how it ended: what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zeus.job import Outcome, Trial

SHOWN_LINES, SHOWN_LETTERS = 15, 500


@dataclass(frozen=True, slots=True)
class Live:
    """A running trial."""

    trial: Trial
    so_far: Outcome
    limit_watts: float | None = None  # None: its own affair


@dataclass(frozen=True, slots=True)
class FinishedTrial:
    """A trial that ended, and what its outcome does not say."""

    outcome: Outcome
    log: Path
    limit_watts: float | None = None
    exit_code: int | None = None  # None: it was not run, or did not end by itself
    end_of_output: str = ""  # where it crashed

    @property
    def last_lines(self) -> list[str]:
        """What is shown of its output where it crashed."""
        lines = [line.rstrip() for line in self.end_of_output.splitlines()]
        return [line if len(line) <= SHOWN_LETTERS else f"{line[:SHOWN_LETTERS]} ..." for line in lines[-SHOWN_LINES:]]
