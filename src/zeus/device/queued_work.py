"""Waits for the work that a framework has queued on GPUs. A framework that is not loaded has queued none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from zeus.errors import InputError


def wait_for(framework: str, gpu_indices: Iterable[int]) -> None:
    """Return when the work of this framework on these GPUs is done. InputError if the framework is not known."""
    if framework not in _WAITS:
        raise InputError(f"framework {framework!r} is not known. Give one of: {', '.join(FRAMEWORKS)}.")
    loaded = sys.modules.get(framework)
    if loaded is not None:
        _WAITS[framework](loaded, gpu_indices)


def _torch(torch: Any, gpu_indices: Iterable[int]) -> None:
    cuda = getattr(torch, "cuda", None)  # missing while torch is being imported
    if cuda is None or not cuda.is_initialized():
        return
    here = cuda.current_device()
    for index in gpu_indices:
        # Skip GPUs that this process does not use: synchronising would allocate memory on them.
        if index < cuda.device_count() and (index == here or cuda.memory_reserved(index)):
            cuda.synchronize(index)


def _jax(jax: Any, gpu_indices: Iterable[int]) -> None:
    for device in jax.local_devices():
        jax.device_put(0.0, device).block_until_ready()


def _cupy(cupy: Any, gpu_indices: Iterable[int]) -> None:
    count = cupy.cuda.runtime.getDeviceCount()
    for index in gpu_indices:
        if index < count:
            cupy.cuda.Device(index).synchronize()


_WAITS: dict[str, Callable[[Any, Iterable[int]], None]] = {"torch": _torch, "jax": _jax, "cupy": _cupy}
FRAMEWORKS = tuple(_WAITS)
