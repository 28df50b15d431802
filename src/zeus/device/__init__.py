"""GPUs and CPUs behind one protocol. Only this package works in milliwatts and millijoules."""

from zeus.lazy import lazy_getattr

__getattr__ = lazy_getattr(
    __name__, {"get_gpus": "zeus.compat.gpus", "get_cpus": "zeus.compat.cpus", "get_soc": "zeus.compat.cpus"}
)
