"""The CPU of a virtual machine. It draws constant power, so its energy follows from the machine's clock alone."""

from __future__ import annotations

from zeus.device.cpu import CounterValue, CpuPackage
from zeus.device.gpu import Clock

NO_CPU = (
    "No CPU energy: these virtual GPUs have no CPU. Give it a power in watts, as in "
    "ZEUS_GPU='virtual:v100?cpu=120', and its memory with dram=WATTS."
)


class ConstantPower:
    """An energy counter of something that always draws the same power.

    >>> from zeus.device.clock import VirtualClock
    >>> counter = ConstantPower(50.0, VirtualClock())
    >>> counter.reading(10.0).joules - counter.reading(4.0).joules
    300.0
    """

    wrap_seconds = float("inf")

    def __init__(self, watts: float, clock: Clock) -> None:
        self.watts = watts
        self._clock = clock

    def energy(self) -> float:
        """Joules since the clock began."""
        return self.reading(self._clock.now()).joules

    def reading(self, moment: float) -> CounterValue:
        """Joules up to this moment on the machine's clock, however late it is asked."""
        return CounterValue(self.watts * moment)


def virtual_cpus(cpu_watts: float, dram_watts: float, clock: Clock) -> list[CpuPackage]:
    """One CPU package with its memory. None if it draws nothing; no memory if that draws nothing."""
    if not cpu_watts:
        return []
    dram = ConstantPower(dram_watts, clock) if dram_watts else None
    return [CpuPackage(0, "virtual-package-0", ConstantPower(cpu_watts, clock), dram)]
