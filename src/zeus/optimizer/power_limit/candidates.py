"""The power limits to try: the set P of §4.2, within what the GPUs and their administrator allow."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

from zeus.device.gpu import Capability, Gpu
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
        InputError: A wanted limit is outside the GPUs' range.

    >>> from zeus.device.virtual import VirtualMachine
    >>> candidates(VirtualMachine.in_memory("v100").gpus, 50)
    (250.0, 200.0, 150.0, 100.0)
    """
    low, high, found = math.inf, -math.inf, -math.inf  # an empty range
    try:
        if gpus and all(Capability.LIMITS in gpu.spec.capabilities for gpu in gpus):
            found = min(gpu.limit() for gpu in gpus)
            low = max(gpu.spec.min_watts for gpu in gpus)
            high = min(gpu.spec.max_watts for gpu in gpus)
    except DeviceError as failed:
        log.warning("power limits are not changed, because they cannot be read: %s", failed)
    crew = crew or Alone()
    lows, highs, founds = zip(*crew.gather((low, high, found)), strict=True)
    low, high, found = max(lows), min(highs), min(founds)
    if not low <= high:
        return ()
    if wanted:
        wrong = [w for w in wanted if not low <= w <= high]
        if wrong:
            raise InputError(f"power_limits {wrong} W are out of range: these GPUs accept {low:g} to {high:g} W.")
        chosen = {float(w) for w in wanted if w <= found}
        return tuple(sorted(chosen or {found}, reverse=True))
    steps = int((high - low) // step)
    chosen = {float(found)} | {float(high - i * step) for i in range(steps + 1) if high - i * step <= found}
    return tuple(sorted(chosen, reverse=True))
