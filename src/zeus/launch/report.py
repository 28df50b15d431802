"""How a trial that a launcher runs stands, and how it ended: what is shown of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zeus.job import Outcome, Trial


@dataclass(frozen=True, slots=True)
class Live:
    """A running trial."""

    trial: Trial
    so_far: Outcome
    limit_watts: float | None = None  # None: its own affair


@dataclass(frozen=True, slots=True)
class Ran:
    """A trial that ended, and what its outcome does not say."""

    outcome: Outcome
    log: Path
    limit_watts: float | None = None
    exit_code: int | None = None  # None: it was not run, or did not end by itself
    last_lines: tuple[str, ...] = ()  # of the log, where it crashed
