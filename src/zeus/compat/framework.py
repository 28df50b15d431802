"""`zeus.utils.framework` of the existing package: which framework is there, and how ranks add up their values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from zeus.device.ranks import connected
from zeus.errors import InputError, ZeusError
from zeus.monitor.window import wait_for

__all__ = [
    "all_reduce",
    "cupy_is_available",
    "get_rank",
    "get_world_size",
    "is_distributed",
    "jax_is_available",
    "sync_execution",
    "torch_is_available",
]

_REDUCE: dict[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max}


def torch_is_available(ensure_available: bool = False, ensure_cuda: bool = True) -> bool:
    """Whether PyTorch is installed. It is not imported, so `ensure_cuda` is not looked at."""
    return _is_installed("torch", ensure_available)


def jax_is_available(ensure_available: bool = False, ensure_cuda: bool = True) -> bool:
    """Whether JAX is installed. It is not imported, so `ensure_cuda` is not looked at."""
    return _is_installed("jax", ensure_available)


def cupy_is_available(ensure_available: bool = False) -> bool:
    """Whether CuPy is installed."""
    return _is_installed("cupy", ensure_available)


def sync_execution(gpu_devices: list[int], sync_with: str = "torch") -> None:
    """Wait for the work that a framework has queued on these GPUs."""
    wait_for(sync_with, gpu_devices)


def is_distributed() -> bool:
    """Whether several processes train together over torch.distributed."""
    return connected() is not None


def get_rank() -> int:
    """The rank of this process; 0 if it trains alone."""
    ranks = connected()
    return 0 if ranks is None else int(ranks.get_rank())


def get_world_size() -> int:
    """How many processes train together."""
    ranks = connected()
    return 1 if ranks is None else int(ranks.get_world_size())


def all_reduce(object: list[float], operation: str) -> list[float]:
    """The sum or the maximum over all ranks, element by element. All ranks must call this.

    >>> all_reduce([1.0, 2.0], "sum")
    [1.0, 2.0]
    """
    if operation not in _REDUCE:
        raise InputError(f"operation {operation!r}: give 'sum' or 'max'.")
    ranks = connected()
    if ranks is None:
        return object
    every: list[Any] = [None] * int(ranks.get_world_size())
    ranks.all_gather_object(every, object)
    return [_REDUCE[operation](values) for values in zip(*every, strict=True)]


def _is_installed(name: str, ensure_available: bool) -> bool:
    there = name in sys.modules or find_spec(name) is not None
    if ensure_available and not there:
        raise ZeusError(f"{name} is not installed. Run `pip install {name}`.")
    return there
