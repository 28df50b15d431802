"""The power limits to try: the set P of §4.2, within what the GPUs, their administrator and the policy allow."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

from zeus.device.gpu import Capability, Gpu
from zeus.device.keeper import permitted
from zeus.distributed.group import RankGroup
from zeus.errors import DeviceError, InputError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LimitRange:
    """Which power limits all GPUs of all ranks accept and the policy allows, in watts. Empty if some has none."""

    low: float
    high: float
    found: float  # the lowest limit in force
    floor: float  # of the policy
    ceiling: float  # likewise

    @property
    def is_empty(self) -> bool:
        return not self.low <= self.high

    def candidates(self, step: float, wanted: Sequence[float] = ()) -> tuple[float, ...]:
        """The limits to try, highest first. Arguments and errors are those of `candidates`."""
        if self.is_empty:
            return ()
        if wanted:
            self._check(wanted)
            chosen = {float(w) for w in wanted if w <= self.found}
            return tuple(sorted(chosen or {self.found}, reverse=True))
        steps = int((self.high - self.low) // step)
        grid = [float(self.high - i * step) for i in range(steps + 1)]
        chosen = {watts for watts in grid if self.floor <= watts <= min(self.found, self.ceiling)}
        return tuple(sorted({float(self.found)} | chosen, reverse=True))

    def _check(self, wanted: Sequence[float]) -> None:
        if wrong := [w for w in wanted if not self.low <= w <= self.high]:
            raise InputError(
                f"power_limits {wrong} W are out of range: these GPUs accept {self.low:g} to {self.high:g} W."
            )
        if wrong := [w for w in wanted if not self.floor <= w <= self.ceiling and w < self.found]:
            raise InputError(
                f"power_limits {wrong} W are not allowed by the policy of this machine's keeper. "
                f"Choose between {self.floor:g} and {min(self.ceiling, self.high):g} W."
            )


def limit_range(gpus: Sequence[Gpu], group: RankGroup | None = None) -> LimitRange:
    """Ask the GPUs of this rank, and agree with the other ranks. Every rank must call this."""
    low, high, found = math.inf, -math.inf, -math.inf  # an empty range
    floor, ceiling = 0.0, math.inf
    try:
        if gpus and all(Capability.LIMITS in gpu.spec.capabilities for gpu in gpus):
            found = min(gpu.limit() for gpu in gpus)
            low = max(gpu.spec.min_watts for gpu in gpus)
            high = min(gpu.spec.max_watts for gpu in gpus)
            floor, ceiling = permitted(gpus)
    except DeviceError as failed:
        log.warning("power limits are not changed, because they cannot be read: %s", failed)
    rows = (group or RankGroup()).gather((low, high, found, floor, ceiling))
    lows, highs, founds, floors, ceilings = zip(*rows, strict=True)
    return LimitRange(max(lows), min(highs), min(founds), max(floors), min(ceilings))


def candidates(
    gpus: Sequence[Gpu], step: float, wanted: Sequence[float] = (), group: RankGroup | None = None
) -> tuple[float, ...]:
    """The limits to try, highest first: what all GPUs of all ranks accept, never above the lowest limit found.

    Args:
        gpus: The GPUs of this rank.
        step: Distance between limits, in watts.
        wanted: The limits to try, in watts, instead of all.
        group: The ranks of the job.

    Raises:
        InputError: A wanted limit is outside the GPUs' range, or the policy does not allow it.

    >>> from zeus.device.virtual import VirtualMachine
    >>> candidates(VirtualMachine.in_memory("v100").gpus, 50)
    (250.0, 200.0, 150.0, 100.0)
    """
    return limit_range(gpus, group).candidates(step, wanted)
