"""The devices of a training over all of its ranks, each counted once."""

from __future__ import annotations

from collections.abc import Iterable

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
    if "cpu" in include:
        refuse_without_cpu(include, ranks.gather(monitor.why_no_cpu))


def refuse_without_cpu(include: Include, why_not: Iterable[str | None]) -> None:
    """Raise `InputError` if the CPU counts and one of these, which are the ranks', says why it cannot be measured."""
    reason = next(filter(None, why_not), None)
    if "cpu" in include and reason is not None:
        raise InputError(
            f"the cost includes the CPU, but its energy cannot be measured. {reason} "
            'To count only GPUs, leave "cpu" out of include.'
        )
