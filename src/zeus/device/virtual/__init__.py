"""Virtual GPUs, which run on any machine: a physical model behind the `Gpu` port."""

from zeus.device.virtual.machine import (
    RankClock,
    StateClock,
    VirtualGpu,
    VirtualMachine,
    VirtualSpec,
    meet,
    parse,
    position,
    step,
    virtual_gpus,
)

__all__ = [
    "RankClock",
    "StateClock",
    "VirtualGpu",
    "VirtualMachine",
    "VirtualSpec",
    "meet",
    "parse",
    "position",
    "step",
    "virtual_gpus",
]
