"""The GPUs of a training over all of its ranks, each counted once."""

from __future__ import annotations

from zeus.distributed.crew import Crew, barrier
from zeus.monitor.window import ZeusMonitor


def count_gpus(monitor: ZeusMonitor, ranks: Crew) -> tuple[int, float]:
    """The number of GPUs that all ranks count, and the sum of their highest limits in watts. Every rank must call."""
    barrier(ranks)  # from here on every rank has a monitor, so it is clear who counts what
    counted = monitor.counted.values()
    rows = ranks.gather((len(counted), sum(gpu.spec.max_watts for gpu in counted)))
    return sum(count for count, _ in rows), sum(watts for _, watts in rows)
