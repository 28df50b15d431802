"""`get_cpus()` and `get_soc()` of the existing package: RAPL counters in millijoules, and no SoC."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from zeus.compat.devices import ByIndex, CamelCase
from zeus.compat.exceptions import *  # noqa: F403 - scripts catch them from the module that has the CPUs
from zeus.device.cpu import POWERCAP, CpuPackage, cpu_packages, why_not
from zeus.errors import NoDevice


@dataclass
class CpuDramMeasurement:
    """Counters of a CPU package and of its memory, or a difference of two."""

    cpu_mj: float
    dram_mj: float | None = None

    def __sub__(self, other: CpuDramMeasurement) -> CpuDramMeasurement:
        both = self.dram_mj is not None and other.dram_mj is not None
        return CpuDramMeasurement(
            self.cpu_mj - other.cpu_mj,
            self.dram_mj - other.dram_mj if both else None,  # type: ignore[operator]
        )

    def __truediv__(self, other: float) -> CpuDramMeasurement:
        return CpuDramMeasurement(self.cpu_mj / other, None if self.dram_mj is None else self.dram_mj / other)


class CPU(CamelCase):
    """One CPU package."""

    def __init__(self, cpu_index: int, package: CpuPackage) -> None:
        self.cpu_index = cpu_index
        self._package = package

    def get_total_energy_consumption(self) -> CpuDramMeasurement:
        """The counters. Raises NotPermitted, which says how to get access, where only root may read them."""
        cpu, dram = self._package.cpu, self._package.dram
        return CpuDramMeasurement(cpu.reading().joules * 1e3, None if dram is None else dram.reading().joules * 1e3)

    def supports_get_dram_energy_consumption(self) -> bool:
        return self._package.dram is not None


class CPUs(ByIndex):
    """All CPU packages of this machine."""

    _kind, _index = CPU, "index"

    def __init__(self, root: Path | str = POWERCAP) -> None:
        super().__init__([CPU(package.index, package) for package in cpu_packages(root)])

    @property
    def cpus(self) -> Sequence[CPU]:
        return self._devices


class EmptyCPUs(CPUs):
    """No CPU whose energy can be measured."""

    def __init__(self) -> None:
        ByIndex.__init__(self, [])


RAPLCPU = ZeusdRAPLCPU = CPU
RAPLCPUs = CPUs


def get_cpus() -> CPUs:
    """The CPU packages of this machine. NoDevice if none has a counter."""
    cpus = CPUs()
    if not cpus:
        raise NoDevice(why_not())
    return cpus


def rapl_is_available() -> bool:
    """Whether this machine has CPU energy counters, readable or not."""
    return bool(cpu_packages())


def get_current_cpu_index(pid: int | str = "current") -> int:
    """The CPU package on which a process runs."""
    stat = Path(f"/proc/{os.getpid() if pid == 'current' else pid}/stat").read_text()
    core = int(stat.rpartition(")")[2].split()[36])
    return int(Path(f"/sys/devices/system/cpu/cpu{core}/topology/physical_package_id").read_text())


class SoC:
    """A system on a chip. None is measured here."""


class EmptySoC(SoC):
    """None."""


class SoCMeasurement:
    """What a SoC used. `Measurement.soc_energy` is always None here."""


def get_soc() -> NoReturn:
    """NoDevice: no SoC is measured here. The existing package raises it too where there is no SoC."""
    raise NoDevice("Zeus measures no SoC (Jetson, Apple silicon), only GPUs and CPUs.")
