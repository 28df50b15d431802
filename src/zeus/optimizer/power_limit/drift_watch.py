"""Watches whether steps still take the time that they took when limits were profiled."""

from __future__ import annotations

import logging
import math
from collections import deque

from zeus.distributed.group import RankGroup
from zeus.profile import PowerProfile

log = logging.getLogger(__name__)

COLD = 0.1  # relative change of step time that shows that the first epoch, in which limits were profiled, was cold
STEPS = 10  # whose median is compared


class DriftWatch:
    """Compares the median time of the latest steps with the profile's.

    Args:
        share: The relative change that counts. None: only once, after limits were profiled in the first pass.
        ranks: The ranks that train together. All see the slowest one's time.
    """

    def __init__(self, share: float | None, ranks: RankGroup) -> None:
        self._share, self._ranks = share, ranks
        self._times: deque[float] = deque(maxlen=STEPS)
        self._was_cold = False  # whether limits were profiled in the first pass, which may have been slow

    def profiled(self, *, is_cold: bool) -> None:
        self._was_cold = is_cold

    def is_due(self, passes: int) -> bool:
        """Whether steps of this pass are watched."""
        return self._share is not None or (self._was_cold and passes > 1)

    def clear(self) -> None:
        """Forget the latest steps, because others follow."""
        self._times.clear()

    def has_changed(self, seconds: float, profile: PowerProfile, limit: float | None) -> bool:
        """Whether steps now take another time than in the profile at this limit. Every rank must call this.

        Args:
            seconds: The time of the step that has just ended.
            profile: What was measured.
            limit: The limit in force.
        """
        self._times.append(seconds)
        if len(self._times) < STEPS:
            return False
        now = sorted(self._times)[len(self._times) // 2]
        if self._ranks.size > 1:
            self._times.clear()  # ranks compare their step times once in a while, not after every step
            now = max(self._ranks.gather(now))
        then = profile.step_at(limit)
        if then is None:
            return False
        beyond, self._was_cold = self._share or (COLD if self._was_cold else math.inf), False
        if abs(now / then.seconds - 1) <= beyond:
            return False
        log.info("profiling again: steps take %.3g s now, and took %.3g s before", now, then.seconds)
        self._times.clear()
        return True
