"""Warns once if another process uses a GPU that is measured, because its energy would be counted as ours."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from zeus.device.gpu import Capability, Gpu
from zeus.errors import DeviceError

log = logging.getLogger(__name__)
_warned: set[str] = set()


def warn_of_foreign_processes(gpus: Iterable[Gpu]) -> None:
    """Look at each GPU's processes. Ours are this one, its ancestors, its descendants and its session."""
    for gpu in gpus:
        if gpu.spec.uuid not in _warned and (what := _shared_with(gpu)):
            _warned.add(gpu.spec.uuid)
            log.warning("GPU %d (%s) %s", gpu.index, gpu.spec.name, what)


def _shared_with(gpu: Gpu) -> str:
    """What else the energy of this GPU includes. Empty if it is all ours."""
    if found := foreign_processes(gpu):
        return f"is also used by other processes ({', '.join(map(str, found))}). The measured energy includes theirs."
    return "is a slice of a card. The measured energy is the whole card's." if gpu.spec.shared else ""


def foreign_processes(gpu: Gpu) -> list[int]:
    """Ids of processes on this GPU that are visible here and are not ours."""
    if Capability.PROCESSES not in gpu.spec.capabilities:
        return []
    try:
        found = gpu.processes()
    except DeviceError:
        return []
    return sorted(pid for pid in found if _is_alive(pid) and not _is_ours(pid))


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()  # in a container the driver's ids may not match; skip those not found


def _is_ours(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0) or os.getpid() in _ancestors(pid) or pid in _ancestors(os.getpid())
    except ProcessLookupError:
        return True
    except OSError:  # not allowed to ask, so it is not ours
        return False


def _ancestors(pid: int) -> set[int]:
    ancestors: set[int] = set()
    while pid > 1 and pid not in ancestors:
        ancestors.add(pid)
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return ancestors
