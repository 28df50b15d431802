"""The two plans of the profiler that users can choose: the walk, and the paper's (§4.2 and §5).

| | walk | paper |
|---|---|---|
| which limits | from limit to limit, until one is worse than the best by more than θ | all |
| how long a look | until the cost is known to 2 %, at least 0.2 s | five seconds |
| a second look | if noise may hide a better limit | none |
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from zeus.optimizer.power_limit.profiler import PROFILE_STEPS, Plan
from zeus.optimizer.power_limit.selector import OptimumSelector
from zeus.settings import ProfilingPlan

PAPER_SECONDS: Final = 5.0  # at each limit (§5)


def plan_of(
    profiling: ProfilingPlan,
    limits: tuple[float, ...],
    selector: OptimumSelector,
    start_watts: float | None = None,
    wait_steps: int = 1,
    warmup_steps: int = 10,
    profile_steps: int = PROFILE_STEPS,
) -> Plan:
    """The plan of this name for these limits, highest first.

    `profile_steps` ends a look of the walk after so many steps, but not before 0.2 s. It does the same in the paper's
    plan, unless it is 40, the default: then a look takes five seconds, however many steps these are.

    >>> from zeus.optimizer.power_limit.selector import ZeusCost
    >>> plan_of(ProfilingPlan.PAPER, (250.0, 200.0), ZeusCost(0.5)).min_seconds
    5.0

    Raises:
        InputError: An argument is not valid.
    """
    walk = Plan(limits, selector, start_watts, wait_steps, warmup_steps, profile_steps)
    if profiling is ProfilingPlan.WALK:
        return walk
    least = PAPER_SECONDS if profile_steps == PROFILE_STEPS else walk.min_seconds
    return replace(walk, min_seconds=least, max_seconds=PAPER_SECONDS, tolerance=0.0, fine=math.inf, theta=math.inf)
