"""Power limits for a training that cannot be interrupted in its steps: one limit an epoch (§4.2), then the best.

The walk over the limits is the profiler's own; an epoch is one step of it. Steady epochs are compared with steady ones.
Where a training has but one epoch, all its epochs are cold, and cold ones are compared, one limit a trial. When epochs
have changed a lot, or the highest limit was not seen for long, an epoch runs there again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from zeus.cost import CostModel
from zeus.device.gpu import Gpu
from zeus.device.keeper import Lease, Observing, lend
from zeus.env import Mode
from zeus.errors import DeviceError, ZeusError
from zeus.job import Kind, Stretch
from zeus.job.units import Units
from zeus.optimizer.power_limit.candidates import candidates
from zeus.optimizer.power_limit.profiler import Plan, choose, next_limit
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import LimitSlice, PowerProfile
from zeus.trial.knowledge import Trials, is_due

log = logging.getLogger(__name__)

STEP_WATTS = 25.0


class EpochLimits:
    """Sets a limit for each epoch. Leaving its `with` block puts back what was found.

    Args:
        gpus: The cards of the job; all get the same limit.
        cost: What is best: Equation 7.
        mode: `observe` goes back to the limit found when all is measured, `off` touches nothing.
        wanted: The limits to try, in watts; none: all in steps of 25 W.
        known: What earlier trials of this size used, the oldest first.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        cost: CostModel,
        mode: Mode,
        wanted: Sequence[float] = (),
        known: Trials = (),
    ) -> None:
        self._gpus = list(gpus)
        self._mode = mode
        self._before: Sequence[Sequence[Stretch]] = known
        self._lease: Lease | None = None
        self.why_not: str | None = None  # why limits are not set, where they are not
        self.found = _lowest(gpus)
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
        if self._plan is not None and is_due(known, limits[0]):
            self._before = [[one for one in trial if one.limit_watts != limits[0]] for trial in known]
        self._known = self._slices(())
        self._choose()

    # ------------------------------------------------------------------ what is known

    @property
    def profile(self) -> PowerProfile | None:
        """What an epoch uses at each limit, as far as it was measured."""
        if self._plan is None or not self._known:
            return None
        return PowerProfile.of((one for chunks in self._known.values() for one in chunks), self._plan.limits)

    @property
    def is_settled(self) -> bool:
        """Whether all is measured that is worth it."""
        return self._plan is None or next_limit(self._plan, self._known) is None

    def _slices(self, own: Iterable[Stretch]) -> dict[float, tuple[LimitSlice, ...]]:
        """An epoch at each limit: steady ones; before any was seen, cold ones."""
        book = Units.of([*self._before, tuple(own)])
        for cold in (None, True):
            found: dict[float, tuple[LimitSlice, ...]] = {
                limit: (LimitSlice(limit, 1, unit.seconds, unit.joules),)
                for limit in (self._plan.limits if self._plan is not None else ())
                if (unit := book.unit(Kind.EPOCH, limit, cold)) is not None
            }
            if found or (own and cold is None):  # in this trial's second epoch a cold one is no example any more
                return found
        return {}

    # ------------------------------------------------------------------ what happens

    def epoch(self, own: Iterable[Stretch]) -> bool:
        """A whole epoch ran; the next one may get another limit. Whether what is known of limits has changed.

        Args:
            own: What this trial used, that epoch included.
        """
        own = tuple(own)
        if self._plan is None or self.in_force is None:
            return False
        if any(one.kind is Kind.EPOCH and one.joules is None for one in own):
            self._let_go("the energy of a GPU is not known")
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
                for uuid, watts in dict(self._lease.found).items():
                    self._lease.set_limit(watts, uuid)
                self.in_force = self.found
            elif limit != self.in_force:
                self._lease.set_limit(limit)
                self.in_force = limit
        except ZeusError as failed:
            self._let_go(str(failed))

    def _let_go(self, why: str) -> None:
        """The training goes on at the limit found."""
        if self._lease is not None:
            log.warning("power limits are left alone from here on: %s", why)
            self.why_not = why
        self.in_force = self.found
        self.close()

    def close(self) -> None:
        """Put back what was found."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            lease.release()

    def __enter__(self) -> EpochLimits:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lowest(gpus: Sequence[Gpu]) -> float | None:
    """The lowest limit in force; None where a card has none that can be read."""
    try:
        return min((gpu.limit() for gpu in gpus), default=None)
    except DeviceError:
        return None
