"""The devices of a training over all of its ranks, each counted once."""

from __future__ import annotations

from zeus.cost import Include
from zeus.distributed.crew import Crew, barrier
from zeus.errors import InputError
from zeus.monitor.window import ZeusMonitor


def count_gpus(monitor: ZeusMonitor, ranks: Crew) -> tuple[int, float]:
    """The number of GPUs that all ranks count, and the sum of their highest limits in watts. Every rank must call."""
    barrier(ranks)  # from here on every rank has a monitor, so it is clear who counts what
    counted = monitor.counted.values()
    rows = ranks.gather((len(counted), sum(gpu.spec.max_watts for gpu in counted)))
    return sum(count for count, _ in rows), sum(watts for _, watts in rows)


def need_included(monitor: ZeusMonitor, ranks: Crew, include: Include) -> None:
    """Check that all the energy that counts can be measured. Every rank must call this, and all get the same answer.

    Raises:
        InputError: The CPU counts, and the counters of some node cannot be read.
    """
    if "cpu" not in include:
        return
    why_not = next((why for why in ranks.gather(monitor.why_no_cpu) if why), None)
    if why_not is not None:
        raise InputError(
            f"the cost includes the CPU, but its energy cannot be measured. {why_not} "
            'To count only GPUs, leave "cpu" out of include.'
        )
