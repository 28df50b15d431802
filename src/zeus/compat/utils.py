"""`zeus.utils` of the existing package: variables, the cost of a run, which framework is there, and sums over ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

from zeus.cost import CostModel
from zeus.device.ranks import connected
from zeus.errors import InputError, NotHere, ZeusError
from zeus.monitor.window import wait_for
from zeus.settings import HERE

T = TypeVar("T")

_TRUTH = {"true": True, "false": False}
_REDUCE: dict[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max}


def get_env(name: str, valtype: type[T], default: T | None = None) -> T:
    """A variable of the environment as this type. Without the variable, the default; InputError without either.

    >>> get_env("ZEUS_SURELY_NOT_SET", float, 1.1)
    1.1
    """
    text = HERE.get(name)
    if text is None:
        if default is None:
            raise InputError(f"the environment has no {name}. Set it.")
        return default
    try:
        return valtype(_TRUTH[text.lower()] if valtype is bool else text)  # type: ignore[call-arg]
    except (ValueError, KeyError):
        raise InputError(f"{name}={text!r}: give a value of type {valtype.__name__}.") from None


def get_ip_lat_long() -> NoReturn:
    """NotHere: Zeus asks no other service where this machine is."""
    raise NotHere("Zeus does not look up where this machine is: give its (latitude, longitude) yourself.")


def zeus_cost(energy: float, time: float, eta_knob: float, max_power: float) -> float:
    """Equation 2: the cost of a run, in joules.

    >>> zeus_cost(energy=1000, time=10, eta_knob=0.5, max_power=250)
    1750.0
    """
    return CostModel(eta_knob, max_power).cost(energy, time)


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
    return 0 if (ranks := connected()) is None else int(ranks.get_rank())


def get_world_size() -> int:
    """How many processes train together."""
    return 1 if (ranks := connected()) is None else int(ranks.get_world_size())


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
