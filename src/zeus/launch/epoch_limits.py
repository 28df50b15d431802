"""Power limits for an unmodified script: each epoch runs at one limit (§4.2), then the best limit is kept.

The order of the limits is the profiler's. Steady epochs are compared with steady ones. A training of one epoch has only
cold epochs: then cold ones are compared, one limit per trial. The highest limit is measured again when epochs have
changed a lot, or when it was not measured for long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from zeus.cost import CostModel
from zeus.device.gpu import Gpu, lowest_limit
from zeus.device.keeper import Lease, Observing, lend
from zeus.errors import ZeusError
from zeus.job import Kind, UsageSegment
from zeus.ledger.units import Units
from zeus.optimizer.power_limit.candidates import candidates
from zeus.optimizer.power_limit.profiler import Plan, choose, next_limit
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import LimitSlice, PowerProfile
from zeus.settings import Mode, ProfilingPlan
from zeus.trial.knowledge import Trials, is_due

log = logging.getLogger(__name__)

STEP_WATTS = 25.0


class EpochLimits:
    """Sets a power limit for each epoch. Leaving its `with` block restores the limits found.

    Args:
        gpus: The GPUs of the job. All get the same limit.
        cost: Cost model; the best limit has the lowest epoch cost (Equation 7).
        mode: `observe` restores the limit found once all is measured. `off` changes no limit.
        wanted: Limits to try, in watts. Empty: all, in steps of 25 W.
        known: What earlier trials of this batch size used, oldest first.
        profiling: Whether limits that cannot win are left out (the walk) or all are measured (the paper's plan). The
            length of a look is one epoch in both.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        cost: CostModel,
        mode: Mode,
        wanted: Sequence[float] = (),
        known: Trials = (),
        profiling: ProfilingPlan = ProfilingPlan.WALK,
    ) -> None:
        self._gpus = list(gpus)
        self._mode = mode
        self._before: Sequence[Sequence[UsageSegment]] = known
        self._lease: Lease | None = None
        self.why_not: str | None = None  # why no limits are set, if none are
        self.found = lowest_limit(gpus)
        self.in_force = self.found
        limits = candidates(self._gpus, STEP_WATTS, wanted)
        if mode is not Mode.OFF and limits:
            match lend(self._gpus):
                case Lease() as lease:
                    self._lease = lease
                case Observing(reason):
                    self.why_not = reason
        if self._lease is None:
            limits = () if self.found is None else (self.found,)
        selector = ZeusCost(cost.eta, len(self._gpus), max_watts=cost.max_watts)
        self._plan = Plan(limits, selector) if limits else None
        if self._plan is not None and profiling is ProfilingPlan.PAPER:
            self._plan = self._plan.of_paper()
        if self._plan is not None and is_due(known, limits[0]):
            self._before = [[one for one in trial if one.limit_watts != limits[0]] for trial in known]
        self._known = self._slices(())
        self._choose()

    # ------------------------------------------------------------------ what is known

    @property
    def profile(self) -> PowerProfile | None:
        """What an epoch uses at each limit measured so far, or None if none was."""
        if self._plan is None or not self._known:
            return None
        return PowerProfile.of((one for chunks in self._known.values() for one in chunks), self._plan.limits)

    @property
    def is_settled(self) -> bool:
        """Whether no other limit is worth measuring."""
        return self._plan is None or next_limit(self._plan, self._known) is None

    def _slices(self, own: Iterable[UsageSegment]) -> dict[float, tuple[LimitSlice, ...]]:
        """What an epoch uses at each limit: steady epochs, or cold ones before any steady epoch was seen."""
        book = Units.of([*self._before, tuple(own)])
        for cold in (None, True):
            found: dict[float, tuple[LimitSlice, ...]] = {
                limit: (LimitSlice(limit, 1, unit.use.seconds, unit.use.joules),)
                for limit in (self._plan.limits if self._plan is not None else ())
                if (unit := book.unit(Kind.EPOCH, limit, cold)) is not None
            }
            if found or (own and cold is None):  # later epochs of this trial are not comparable with cold ones
                return found
        return {}

    # ------------------------------------------------------------------ what happens

    def epoch(self, own: Iterable[UsageSegment]) -> bool:
        """An epoch has ended: choose the limit of the next one. Returns whether the profile has changed.

        Args:
            own: What this trial used, including that epoch.
        """
        own = tuple(own)
        if self._plan is None or self.in_force is None:
            return False
        if any(one.kind is Kind.EPOCH and one.joules is None for one in own):
            self._stop_limiting("the energy cannot be measured")
            return False
        before, self._known = self._known, self._slices(own)
        self._choose()
        return self._known != before

    def _choose(self) -> None:
        if self._plan is None or self._lease is None:
            return
        limit = next_limit(self._plan, self._known)
        if limit is None and self._mode is Mode.OPTIMIZE:
            limit = choose(self._plan.selector, self._known, self._plan.limits)
        try:
            if limit is None:
                self._lease.set_found()
                self.in_force = self.found
            elif limit != self.in_force:
                self._lease.set_limit(limit)
                self.in_force = limit
        except ZeusError as failed:
            self._stop_limiting(str(failed))

    def _stop_limiting(self, why: str) -> None:
        if self._lease is not None:
            log.warning("power limits are restored and not changed any more: %s", why)
            self.why_not = why
        self.close()
        self.in_force = lowest_limit(self._gpus)  # the keeper may not have been able to restore it yet

    def close(self) -> None:
        """Restore the limits found."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            lease.release()

    def __enter__(self) -> EpochLimits:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
