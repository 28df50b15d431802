"""The GPUs of a training over all of its ranks, each counted once, as its job's trials name them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from socket import gethostname

from zeus.cost import GPU_ONLY, Include
from zeus.device.find import no_gpu
from zeus.distributed.group import RankGroup
from zeus.errors import InputError
from zeus.job import Gpus
from zeus.monitor.window import ZeusMonitor

Cards = Mapping[tuple[str, str], float]  # highest limits in watts, by node and UUID


def cards_of(monitor: ZeusMonitor) -> Cards:
    """The cards that this rank sees. Several ranks of a node may see the same."""
    node = gethostname()
    return {(node, gpu.spec.uuid): gpu.spec.max_watts for gpu in monitor.gpus.values()}


def counted_once(rows: Iterable[Cards]) -> tuple[int, float]:
    """The number of different cards, and the sum of their highest limits in watts.

    >>> counted_once([{("node", "a"): 250.0, ("node", "b"): 250.0}, {("node", "b"): 250.0}])
    (2, 500.0)
    """
    cards = {card: watts for row in rows for card, watts in row.items()}
    return len(cards), sum(cards.values())


def need_included(monitor: ZeusMonitor, ranks: RankGroup, include: Include) -> None:
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


def gpus_of(monitor: ZeusMonitor, group: RankGroup | None = None, include: Include = GPU_ONLY) -> Gpus:
    """The GPUs of a training, summed over the monitors of all ranks. Every rank must call this.

    Args:
        monitor: Measures the GPUs of this rank.
        group: The ranks that train together.
        include: Whose energy the costs count.

    Raises:
        InputError: MAXPOWER is not known, or the energy of a CPU that counts cannot be measured.

    >>> from zeus.device.virtual import VirtualMachine
    >>> gpus_of(ZeusMonitor(gpus=dict(enumerate(VirtualMachine.in_memory("v100", 2).gpus)))).label
    '2 x Tesla V100-PCIE-32GB'
    """
    need_included(monitor, group or RankGroup(), include)
    rows = (group or RankGroup()).gather(cards_of(monitor))  # now every rank has a monitor: who counts what is clear
    return gpus_like(monitor, *counted_once(rows), include)


def gpus_like(monitor: ZeusMonitor, count: int, watts: float, include: Include = GPU_ONLY) -> Gpus:
    """So many GPUs of the model that this monitor measures, with this sum of highest limits. Raises like `gpus_of`."""
    if not count:
        raise InputError(f"{no_gpu()} Costs depend on the highest power limit of the GPUs.")
    if not (math.isfinite(watts) and watts > 0):
        raise InputError(
            f"the highest power limit of the GPUs here ({count} found) is not known: {watts:g} W. Costs depend on it. "
            "`zeus env` shows what each GPU can report."
        )
    name = next(gpu.spec.name for gpu in monitor.gpus.values())
    return Gpus(name, count, watts, include)
