"""The processes that train one model together, as the power limit sees them: what they must agree on."""

from __future__ import annotations

from typing import Protocol


class Crew(Protocol):
    """All ranks of a job. Every rank makes the same calls in the same order, at the same step counts.

    A rank sets the limits of the GPUs that it counts (see `zeus.monitor.ranks`): usually the lowest of a node.
    """

    @property
    def size(self) -> int:
        """How many ranks."""

    @property
    def writes(self) -> bool:
        """Whether this rank writes what all share: one rank of the job does."""

    def agree(self, joules: float, seconds: float) -> tuple[float, float]:
        """Energy summed over all ranks, and the time of the slowest; the same numbers on every rank."""


class Alone:
    """A training in one process: it agrees with itself.

    >>> Alone().agree(100.0, 2.0)
    (100.0, 2.0)
    """

    size = 1
    writes = True

    def agree(self, joules: float, seconds: float) -> tuple[float, float]:
        """As they are."""
        return joules, seconds
