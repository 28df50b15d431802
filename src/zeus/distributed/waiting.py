"""How long a rank waited for slower ranks, and what that cost.

Only waits in Zeus's own exchanges are seen. Ranks also wait for each other inside the training's own collectives, where
a wait cannot be told from work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from zeus.cost import CostModel, Use
from zeus.distributed.crew import Crew

NOTICEABLE = 0.01  # share of a training's time
NOTICEABLE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RankWait:
    """What one rank waited for slower ones."""

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

    def __init__(self, ranks: Crew) -> None:
        self._ranks, self._before = ranks, ranks.waited

    def so_far(self, cost: CostModel | None, whole: Use) -> RankWait:
        """What this rank has waited.

        Args:
            cost: Equation 2; None if MAXPOWER is not known.
            whole: What all ranks together used.
        """
        seconds = self._ranks.waited - self._before
        return RankWait(self._ranks.rank, seconds, cost_of_waiting(seconds, cost, whole, self._ranks.size))
