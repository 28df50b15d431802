"""Power limits for a training that cannot be interrupted in its steps: one limit an epoch (§4.2), then the best.

The walk over the limits is the profiler's own; an epoch is one step of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from zeus.cost import CostModel
from zeus.device.gpu import Gpu
from zeus.device.keeper import Lease, Observing, lend
from zeus.env import Mode
from zeus.errors import DeviceError, ZeusError
from zeus.optimizer.power_limit.candidates import candidates
from zeus.optimizer.power_limit.profiler import Plan, choose, next_limit
from zeus.optimizer.power_limit.selector import ZeusCost
from zeus.profile import PowerProfile, Slice

log = logging.getLogger(__name__)

STEP_WATTS = 25.0


class EpochLimits:
    """Sets a limit for each epoch. Leaving its `with` block puts back what was found.

    Args:
        gpus: The cards of the job; all get the same limit.
        cost: What is best: Equation 7.
        mode: `observe` goes back to the limit found when all is measured, `off` touches nothing.
        wanted: The limits to try, in watts; none: all in steps of 25 W.
        stored: What earlier trials of this size have measured; what it lacks is measured now.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        cost: CostModel,
        mode: Mode,
        wanted: Sequence[float] = (),
        stored: PowerProfile | None = None,
    ) -> None:
        self._gpus = list(gpus)
        self._cost = cost
        self._mode = mode
        self._stored = stored
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
        self._known: Mapping[float, tuple[Slice, ...]] = {
            one.limit_watts: (one,)
            for one in (stored.slices if stored is not None else ())
            if one.limit_watts in limits
        }
        self._choose()

    # ------------------------------------------------------------------ what is known

    @property
    def profile(self) -> PowerProfile | None:
        """Everything measured so far, earlier trials included."""
        if self._plan is None or not self._known:
            return self._stored
        slices = (one for chunks in self._known.values() for one in chunks)
        return PowerProfile.of(slices, self._plan.limits).beside(self._stored)

    @property
    def best(self) -> Slice | None:
        """An epoch at the best limit, once all is measured that is worth it."""
        if self._plan is None or next_limit(self._plan, self._known) is not None:
            return None
        return self._known[choose(self._plan.selector, self._known, self._plan.limits)][0]

    def next_epoch(self) -> float | None:
        """The cost of an epoch at the limit in force; None where none was measured there."""
        chunks = self._known.get(self.in_force) if self.in_force is not None else None
        return None if not chunks else self._cost.cost(chunks[0].joules, chunks[0].seconds)

    def cheapest_epoch(self) -> float | None:
        """The least that an epoch is known to cost at any limit."""
        return min((self._cost.cost(s.joules, s.seconds) for (s, *_) in self._known.values()), default=None)

    # ------------------------------------------------------------------ what happens

    def epoch(self, joules: float, seconds: float) -> bool:
        """A whole epoch ran at the limit in force; the next one may get another. Whether this was news."""
        if self._plan is None or self.in_force is None or self.in_force in self._known:
            return False
        if not (joules > 0 and seconds > 0):  # NaN: without energy there is nothing to choose by
            self._let_go("the energy of a GPU is not known")
            return False
        self._known = {**self._known, self.in_force: (Slice(self.in_force, 1, seconds, joules),)}
        self._choose()
        return True

    def _choose(self) -> None:
        if self._plan is None or self._lease is None:
            return
        best, limit = self.best, next_limit(self._plan, self._known)
        if limit is None and best is not None and self._mode is Mode.OPTIMIZE:
            limit = best.limit_watts
        try:
            if limit is not None:
                self._lease.set_limit(limit)
                self.in_force = limit
            else:
                for uuid, watts in dict(self._lease.found).items():
                    self._lease.set_limit(watts, uuid)
                self.in_force = self.found
        except ZeusError as failed:
            self._let_go(str(failed))

    def _let_go(self, why: str) -> None:
        """The training goes on at the limit found."""
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
