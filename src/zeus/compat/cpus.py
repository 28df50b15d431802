"""`get_cpus()` and `get_soc()` of the existing package: RAPL counters in millijoules, and no SoC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from zeus.compat.devices import ByIndex
from zeus.compat.exceptions import *  # noqa: F403 - scripts catch them from the module that has the CPUs
from zeus.device.cpu import POWERCAP, CpuPackage, cpu_packages, why_not
from zeus.errors import NoDevice


@dataclass
class CpuDramMeasurement:
    """Counters of a CPU package and of its memory."""

    cpu_mj: float
    dram_mj: float | None = None


class CPU:
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


def get_soc() -> NoReturn:
    """NoDevice: no SoC is measured here. The existing package raises it too where there is no SoC."""
    raise NoDevice("Zeus measures no SoC (Jetson, Apple silicon), only GPUs and CPUs.")
