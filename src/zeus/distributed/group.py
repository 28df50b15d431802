"""The processes that train one model together, and how they agree on values.

`RankGroup.gather` is the one way to meet: every rank gives a value, and every rank gets all of them. So every rank must
make the same calls in the same order, at the same step counts. A script that calls Zeus on its first rank only cannot
keep that promise, so it is served by `post` and `read` alone: a rank that never reads keeps nobody waiting.

Every wait is bounded. If a rank does not come, the others get DeviceError, and each restores what it has set.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from zeus import settings
from zeus.cost import CostModel, Use
from zeus.device.ranks import connected, is_first
from zeus.errors import DeviceError

T = TypeVar("T")

NOTICEABLE = 0.01  # share of a training's time
NOTICEABLE_SECONDS = 1.0


class RankGroup:
    """All ranks of a job. This one is of a training in a single process.

    Each rank sets the power limits of the GPUs that it counts (see `zeus.distributed.counting`). That is usually the
    lowest rank of a node.

    >>> RankGroup().gather("here"), RankGroup().broadcast("go on")
    (['here'], 'go on')
    """

    rank = 0
    size = 1
    waited = 0.0  # seconds that this rank has spent waiting for slower ones in `gather`

    @property
    def writes(self) -> bool:
        """Whether this rank writes what all share. Exactly one rank of the job does."""
        return self.rank == 0

    def everyone(self) -> bool:
        """Whether all ranks use Zeus. Ranks wait for each other once, and all get the same answer."""
        return True

    def gather(self, value: T) -> list[T]:
        """The value of every rank, in rank order. Waits until all ranks have called it.

        Raises:
            DeviceError: A rank is lost, or this rank is cut off from the others.
        """
        return [value]

    def broadcast(self, value: T) -> T:
        """Rank 0's value. Raises like `gather`."""
        return self.gather(value)[0]

    def post(self, key: str, value: object) -> None:
        """Leave a value, which can be pickled, under a key that nobody has used before. Does not wait."""

    def read(self, key: str, by: int = 0) -> Any:
        """The value that rank `by` posts under this key. Waits for it, and raises DeviceError if that rank is lost."""
        raise DeviceError("there is no other rank")

    def on_loss(self, restore: Callable[[], str | None], give_up: Callable[[str], None]) -> None:
        """Call these functions when a rank is lost. Methods do not keep their object alive.

        Args:
            restore: Called as soon as any rank notices the loss, perhaps on another thread while the training waits.
                It must not change what this rank gathers next. It returns what it did, to complete "This rank ...", or
                None if it did nothing.
            give_up: Called with the reason inside `gather`, in the same call on all ranks that can still be reached.
        """


def rank_group() -> RankGroup:
    """All ranks if torch.distributed connects several that use Zeus, else this process alone. Does not import torch.

    The first call on each rank waits for all ranks. A script may use Zeus on its first rank only; then the ranks that
    do call it go on alone after a minute.

    >>> rank_group().size
    1
    """
    ranks = connected_group()
    return ranks if ranks is not None and ranks.everyone() else RankGroup()


def connected_group() -> RankGroup | None:
    """All ranks of torch.distributed, whether or not they use Zeus; None if there is one. Does not wait.

    >>> connected_group() is None
    True
    """
    if connected() is None:
        return None
    from zeus.distributed import store_group

    return store_group.current()


def broadcast(value: T) -> T:
    """Rank 0's value on every rank, for decisions that must be the same everywhere.

    >>> broadcast("go on")
    'go on'
    """
    return rank_group().broadcast(value)


def barrier(ranks: RankGroup) -> None:
    """Wait until every rank is here."""
    ranks.gather(None)


# ------------------------------------------------------------------------------------- waiting for slower ranks


@dataclass(frozen=True, slots=True)
class RankWait:
    """What one rank waited for slower ones in Zeus's own exchanges.

    Ranks also wait for each other inside the training's own collectives, where a wait cannot be told from work.
    """

    rank: int = 0
    seconds: float = 0.0
    cost: float = 0.0  # joules of cost (Equation 2); NaN if it is not known

    def is_noticeable(self, seconds: float) -> bool:
        """Whether it is worth a word in a training that took so many seconds."""
        return self.seconds >= max(NOTICEABLE_SECONDS, NOTICEABLE * seconds)

    def __str__(self) -> str:
        """What it says, after the name of a rank.

        >>> str(RankWait(2, 12.3, 4100.0)), str(RankWait(2, 12.3, math.nan))
        ('waited 12.3 s for slower ranks, at a cost of 4100 J', 'waited 12.3 s for slower ranks')
        """
        cost = f", at a cost of {self.cost:.0f} J" if math.isfinite(self.cost) else ""
        return f"waited {self.seconds:.1f} s for slower ranks{cost}"


def cost_of_waiting(seconds: float, cost: CostModel | None, whole: Use, ranks: int) -> float:
    """Equation 3 at the average power of the whole training, for this rank's share of its GPUs.

    GPUs that wait draw less than the average, so this is an upper bound. NaN if energy or MAXPOWER is not known.

    >>> cost_of_waiting(2.0, CostModel(0.5, 500.0), Use(3000.0, 10.0), ranks=2)
    400.0
    """
    if not seconds:
        return 0.0
    if cost is None or not whole.is_known or not whole.seconds > 0:
        return math.nan
    return cost.rate(whole.joules / whole.seconds) * seconds / ranks


class WaitRecord:
    """Counts the waits of one training, from when this is made."""

    def __init__(self, ranks: RankGroup) -> None:
        self._ranks, self._before = ranks, ranks.waited

    def so_far(self, cost: CostModel | None, whole: Use) -> RankWait:
        """What this rank has waited.

        Args:
            cost: Equation 2; None if MAXPOWER is not known.
            whole: What all ranks together used.
        """
        seconds = self._ranks.waited - self._before
        return RankWait(self._ranks.rank, seconds, cost_of_waiting(seconds, cost, whole, self._ranks.size))


# ------------------------------------------------------------------- lines for the person who runs the training


def print_notice(line: str, *, every_rank: bool = False) -> None:
    """Print a line on stderr for a person who sees no log, unless ZEUS_QUIET is set. Only the first rank prints it."""
    if (every_rank or is_first()) and not settings.quiet():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed, full or None
            sys.stderr.write(f"zeus: {line}\n")
