"""The GPUs of a training over all of its ranks, each counted once."""

from __future__ import annotations

from zeus.distributed.crew import Crew, barrier
from zeus.monitor.window import ZeusMonitor


def count_gpus(monitor: ZeusMonitor, ranks: Crew) -> tuple[int, float]:
    """How many GPUs all ranks count together, and the sum of their highest limits in watts. Every rank must ask."""
    barrier(ranks)  # every rank's monitor is there by now, so it is settled who counts what
    counted = monitor.counted.values()
    rows = ranks.gather((len(counted), sum(gpu.spec.max_watts for gpu in counted)))
    return sum(count for count, _ in rows), sum(watts for _, watts in rows)
