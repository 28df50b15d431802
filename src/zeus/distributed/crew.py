"""The processes that train one model together, and how they agree on values.

There is one way to exchange values: a board where ranks post and read. `Crew.gather` is made of it: all ranks post, and
all read one verdict. So every rank must make the same calls in the same order, at the same step counts. A script that
asks only on its first rank cannot keep that promise, so it is served by `Board.post` and `Board.read` alone.

Every wait is bounded. If a rank does not come, the others get DeviceError, and whoever can restore something does so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Crew(Protocol):
    """All ranks of a job.

    Each rank sets the power limits of the GPUs that it counts (see `zeus.distributed.counting`). That is usually the
    lowest rank of a node.
    """

    rank: int
    waited: float  # seconds that this rank has spent waiting for slower ones in `gather`

    @property
    def size(self) -> int:
        """The number of ranks."""

    @property
    def writes(self) -> bool:
        """Whether this rank writes what all share. Exactly one rank of the job does."""

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in rank order. Waits until all ranks have called it.

        Raises:
            DeviceError: A rank is lost, or this rank is cut off from the others.
        """

    def broadcast(self, value: T) -> T:
        """Rank 0's value. Raises like `gather`."""

    def on_loss(self, restore: Callable[[], str | None], give_up: Callable[[str], None]) -> None:
        """Call these functions when a rank is lost. Methods do not keep their object alive.

        Args:
            restore: Called as soon as any rank notices the loss, perhaps on another thread while the training waits.
                It must not change what this rank gathers next. It returns what it did, to complete "This rank ...", or
                None if it did nothing.
            give_up: Called with the reason inside `gather`, in the same call on all ranks that can still be reached.
        """


class Board(Protocol):
    """Where ranks leave values for each other without meeting: a rank that never looks keeps nobody waiting."""

    rank: int
    size: int

    def post(self, key: str, value: object) -> None:
        """Leave a value, which can be pickled, under a key of its own."""

    def read(self, key: str, by: int = 0) -> Any:
        """The value that rank `by` left under this key, or will leave. DeviceError if that rank is lost."""

    def everyone(self) -> bool:
        """Whether all ranks use Zeus. Ranks wait for each other once, and all get the same answer."""


class Alone:
    """A training in a single process.

    >>> Alone().gather("here"), Alone().broadcast("go on")
    (['here'], 'go on')
    """

    rank = 0
    size = 1
    writes = True
    waited = 0.0

    def gather(self, value: T) -> list[T]:
        return [value]

    def broadcast(self, value: T) -> T:
        return value

    def on_loss(self, restore: Callable[[], str | None], give_up: Callable[[str], None]) -> None:
        pass


def crew() -> Crew:
    """All ranks if torch.distributed is set up for several, else this process alone. Does not import torch.

    >>> crew().size
    1
    """
    if "torch.distributed" not in sys.modules:
        return Alone()
    from zeus.distributed import torch_crew

    return torch_crew.crew()


def board() -> Board | None:
    """The board of all ranks; None if this process trains alone. Does not wait, and does not import torch.

    >>> board() is None
    True
    """
    if "torch.distributed" not in sys.modules:
        return None
    from zeus.distributed import torch_board

    return torch_board.board()


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
