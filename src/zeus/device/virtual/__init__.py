"""Virtual GPUs, which run on any machine: a physical model behind the `Gpu` port."""

from zeus.device.virtual.machine import VirtualGpu, VirtualMachine, step, virtual_gpus

__all__ = ["VirtualGpu", "VirtualMachine", "step", "virtual_gpus"]
