"""The CPU and DRAM counters of this node, read together. A counter that fails makes its energy unknown, never less."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from zeus.device.cpu import CounterValue, CpuPackage, EnergyCounter, cpu_packages, why_not, why_unreadable
from zeus.device.gpu import Gpu
from zeus.device.virtual.host import NO_CPU
from zeus.errors import DeviceError, NoCpuEnergy

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CpuReadings:
    """What each counter showed at one moment, by package. A counter that could not be read is missing."""

    cpu: dict[int, CounterValue] = field(default_factory=dict)
    dram: dict[int, CounterValue] = field(default_factory=dict)


class CpuCounters:
    """The counters of some CPU packages.

    Args:
        packages: The packages to read. Those that cannot be read at all are left out.
        why_not: Why there are none, if there are none.

    >>> from zeus.device.clock import VirtualClock
    >>> from zeus.device.virtual.host import virtual_cpus
    >>> counters = CpuCounters(virtual_cpus(100.0, 20.0, VirtualClock()))
    >>> counters.between(counters.read(1.0), counters.read(3.0))
    ({0: 200.0}, {0: 40.0})
    """

    def __init__(self, packages: Sequence[CpuPackage], why_not: str = "") -> None:
        self._cpu: dict[int, EnergyCounter] = {}
        self._dram: dict[int, EnergyCounter] = {}
        for package in packages:
            if _is_readable(package.cpu):
                self._cpu[package.index] = package.cpu
                if package.dram is not None and _is_readable(package.dram):
                    self._dram[package.index] = package.dram
        self.names = [package.name for package in packages]  # readable or not
        self.why_not = why_not or why_unreadable(packages)  # why some of the energy cannot be read; empty if all can

    @property
    def indices(self) -> list[int]:
        """The packages that can be read."""
        return list(self._cpu)

    @property
    def wrap_seconds(self) -> float:
        """Read the counters more often than this, or a wrap goes unnoticed."""
        return min((one.wrap_seconds for one in (*self._cpu.values(), *self._dram.values())), default=math.inf)

    def read(self, moment: float) -> CpuReadings:
        """Read all counters. `moment` is now, on the monitor's clock."""
        return CpuReadings(_read(self._cpu, moment), _read(self._dram, moment))

    def between(self, begin: CpuReadings, end: CpuReadings) -> tuple[dict[int, float], dict[int, float]]:
        """Joules of each package, and of its memory where that has a counter. NaN if a counter failed in between."""
        return _between(self._cpu, begin.cpu, end.cpu), _between(self._dram, begin.dram, end.dram)


def counters_of(gpus: Iterable[Gpu], indices: Sequence[int] | None = None) -> CpuCounters:
    """The counters of the node that these GPUs are in. Virtual GPUs are in a virtual node, which may have no CPU.

    Args:
        gpus: The GPUs.
        indices: The CPU packages wanted. None means all that can be read.

    Raises:
        NoCpuEnergy: There is no such package, or it cannot be read.
    """
    machine = next((found for gpu in gpus if (found := getattr(gpu, "machine", None)) is not None), None)
    packages: list[CpuPackage] = cpu_packages() if machine is None else machine.cpus
    if indices is None:
        nothing = "" if packages else why_not() if machine is None else NO_CPU
        return CpuCounters(packages, nothing)
    known = {package.index: package for package in packages}
    if missing := [index for index in indices if index not in known]:
        there = f"The CPUs are {list(known)}." if known else why_not() if machine is None else NO_CPU
        raise NoCpuEnergy(f"cpu_indices={list(indices)}: there is no CPU {missing}. {there}")
    for index in indices:
        try:
            known[index].energy()
        except DeviceError as why:
            raise NoCpuEnergy(str(why)) from why
    return CpuCounters([known[index] for index in indices], "" if indices else "No CPU energy: cpu_indices is empty.")


def _is_readable(counter: EnergyCounter) -> bool:
    try:
        counter.energy()
    except DeviceError as why:
        log.info("%s", why)
        return False
    return True


def _read(counters: dict[int, EnergyCounter], moment: float) -> dict[int, CounterValue]:
    shown = {}
    for index, counter in counters.items():
        try:
            shown[index] = counter.reading(moment)
        except DeviceError as why:
            log.debug("%s", why)
    return shown


def _between(counters: Iterable[int], begin: dict[int, CounterValue], end: dict[int, CounterValue]) -> dict[int, float]:
    return {index: _difference(begin.get(index), end.get(index)) for index in counters}


def _difference(begin: CounterValue | None, end: CounterValue | None) -> float:
    if begin is None or end is None or begin.breaks != end.breaks:
        return math.nan
    return end.joules - begin.joules
