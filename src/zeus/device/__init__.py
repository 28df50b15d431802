"""GPUs and CPUs behind one protocol. Only this package works in milliwatts and millijoules."""

from zeus.lazy import borrow

__getattr__ = borrow(
    __name__, {"get_gpus": "zeus.compat.gpus", "get_cpus": "zeus.compat.cpus", "get_soc": "zeus.compat.cpus"}
)
