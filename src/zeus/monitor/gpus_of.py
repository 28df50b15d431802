"""The GPUs of a training, as its job's trials name them."""

from __future__ import annotations

import math

from zeus.cost import GPU_ONLY, Include
from zeus.device.find import no_gpu
from zeus.distributed.group import RankGroup, SingleRank
from zeus.errors import InputError
from zeus.job import Gpus
from zeus.monitor import ZeusMonitor
from zeus.monitor.all_ranks import count_gpus, need_included


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
    need_included(monitor, group or SingleRank(), include)
    return gpus_like(monitor, *count_gpus(monitor, group or SingleRank()), include)


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
