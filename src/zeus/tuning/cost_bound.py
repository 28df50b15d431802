"""Early stopping of a search (§4.4): no trial may cost more than β times the cheapest completed one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from zeus.cost import fits
from zeus.errors import InputError
from zeus.policy.paper.stopping import Cheapest, cost_limit

COST = "zeus/cost"
COMPARABLE = ("zeus/eta", "zeus/gpus")  # costs with another η or on other GPUs say nothing about this trial


@dataclass(frozen=True, slots=True)
class CostBound:
    """β, as in a recurring job.

    >>> bound = CostBound(beta=2)
    >>> bound.is_exceeded({"zeus/cost": 21.0}, [{"zeus/cost": 10.0}, {"zeus/cost": 30.0}, {}])
    True
    """

    beta: float = 2.0

    def __post_init__(self) -> None:
        if isinstance(self.beta, bool) or not (self.beta >= 1 and math.isfinite(self.beta)):
            raise InputError(f"beta={self.beta!r}: give a number of at least 1.")

    def is_exceeded(self, trial: Mapping[str, Any], completed: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a trial with these values costs too much. False if its cost is not known, or none to compare with."""
        if COST not in trial:
            return False
        like = [one for one in completed if COST in one and all(one.get(k) == trial.get(k) for k in COMPARABLE)]
        cheapest = reduce(Cheapest.add, (one[COST] for one in like), Cheapest())
        return not fits(trial[COST], cost_limit(cheapest, self.beta))
