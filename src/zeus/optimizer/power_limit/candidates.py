"""The power limits to try: the set P of §4.2, within what the GPUs, their administrator and the policy allow."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from zeus.device.gpu import Capability, Gpu
from zeus.device.keeper import permitted
from zeus.distributed.crew import Alone, Crew
from zeus.errors import DeviceError, InputError

log = logging.getLogger(__name__)


def candidates(
    gpus: Sequence[Gpu], step: float, wanted: Sequence[float] = (), crew: Crew | None = None
) -> tuple[float, ...]:
    """The limits to try, highest first: what all GPUs of all ranks accept, never above the lowest limit found.

    Args:
        gpus: The GPUs of this rank.
        step: Distance between limits, in watts.
        wanted: The limits to try, in watts, instead of all.
        crew: The ranks of the job.

    Raises:
        InputError: A wanted limit is outside the GPUs' range, or the policy does not allow it.

    >>> from zeus.device.virtual import VirtualMachine
    >>> candidates(VirtualMachine.in_memory("v100").gpus, 50)
    (250.0, 200.0, 150.0, 100.0)
    """
    low, high, found = math.inf, -math.inf, -math.inf  # an empty range
    floor, ceiling = 0.0, math.inf  # of the policy
    try:
        if gpus and all(Capability.LIMITS in gpu.spec.capabilities for gpu in gpus):
            found = min(gpu.limit() for gpu in gpus)
            low = max(gpu.spec.min_watts for gpu in gpus)
            high = min(gpu.spec.max_watts for gpu in gpus)
            floor, ceiling = permitted(gpus)
    except DeviceError as failed:
        log.warning("power limits are not changed, because they cannot be read: %s", failed)
    crew = crew or Alone()
    lows, highs, founds, floors, ceilings = zip(*crew.gather((low, high, found, floor, ceiling)), strict=True)
    low, high, found, floor, ceiling = max(lows), min(highs), min(founds), max(floors), min(ceilings)
    if not low <= high:
        return ()
    if wanted:
        wrong = [w for w in wanted if not low <= w <= high]
        if wrong:
            raise InputError(f"power_limits {wrong} W are out of range: these GPUs accept {low:g} to {high:g} W.")
        if wrong := [w for w in wanted if not floor <= w <= ceiling and w < found]:
            raise InputError(
                f"power_limits {wrong} W are not allowed by the policy of this machine's keeper. "
                f"Choose between {floor:g} and {min(ceiling, high):g} W."
            )
        chosen = {float(w) for w in wanted if w <= found}
        return tuple(sorted(chosen or {found}, reverse=True))
    steps = int((high - low) // step)
    chosen = {float(high - i * step) for i in range(steps + 1) if high - i * step <= min(found, ceiling)}
    chosen = {float(found)} | {watts for watts in chosen if watts >= floor}
    return tuple(sorted(chosen, reverse=True))
