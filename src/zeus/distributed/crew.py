"""The processes that train one model together, and how they agree on values.

Every rank must make the same calls in the same order, at the same step counts.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Crew(Protocol):
    """All ranks of a job.

    Each rank sets the power limits of the GPUs that it counts (see `zeus.distributed.counting`). That is usually the
    lowest rank of a node.
    """

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def writes(self) -> bool:
        """Whether this rank writes what all share. Exactly one rank of the job does."""

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in rank order. Waits until all ranks have called it."""

    def broadcast(self, value: T) -> T:
        """Rank 0's value."""


class Board(Protocol):
    """Where ranks leave values for each other without meeting: a rank that never looks keeps nobody waiting."""

    rank: int
    size: int

    def post(self, key: str, value: object) -> None:
        """Leave a value, which can be pickled, under a key of its own."""

    def read(self, key: str) -> Any:
        """The value that a rank left under this key, or will leave soon. DeviceError if it never comes."""

    def everyone(self) -> bool:
        """Whether all ranks use Zeus. The first rank waits for the others, and they for its answer."""


class Alone:
    """A training in a single process.

    >>> Alone().gather("here"), Alone().broadcast("go on")
    (['here'], 'go on')
    """

    size = 1
    writes = True

    def gather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value


def crew() -> Crew:
    """All ranks if torch.distributed is set up for several, else this process alone. Does not import torch.

    >>> crew().size
    1
    """
    return _torch_crew().crew() if "torch.distributed" in sys.modules else Alone()


def board() -> Board | None:
    """The board of all ranks; None if this process trains alone. Does not wait, and does not import torch.

    >>> board() is None
    True
    """
    found: Board | None = _torch_crew().board() if "torch.distributed" in sys.modules else None
    return found


def broadcast(value: T) -> T:
    """Rank 0's value on every rank, for decisions that must be the same everywhere.

    >>> broadcast("go on")
    'go on'
    """
    return crew().broadcast(value)


def barrier(ranks: Crew) -> None:
    """Wait until every rank is here."""
    ranks.gather(None)


def together(ranks: Crew, joules: float, seconds: float) -> tuple[float, float]:
    """The energy summed over all ranks, and the time of the slowest rank.

    >>> together(Alone(), 100.0, 2.0)
    (100.0, 2.0)
    """
    rows = ranks.gather((joules, seconds))
    return sum(row[0] for row in rows), max(row[1] for row in rows)


def _torch_crew() -> Any:
    from zeus.distributed import torch_crew

    return torch_crew
