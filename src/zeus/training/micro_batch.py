"""Splits a global batch size over GPUs and accumulation steps. Pure.

A batch size of a job is global: the samples behind one update of the weights, summed over all GPUs and over all batches
whose gradients are accumulated.

    batch size = per_device · world_size · accumulation_steps
"""

from __future__ import annotations

from dataclasses import dataclass

from zeus.errors import InputError


@dataclass(frozen=True, slots=True)
class BatchSplit:
    """How one global batch is trained."""

    per_device: int  # samples on each GPU at once
    accumulation_steps: int  # batches whose gradients make one update of the weights
    world_size: int  # GPUs


def split(batch_size: int, world_size: int = 1, micro: int = 0) -> BatchSplit:
    """Split a global batch size so that each GPU has at most `micro` samples at once. With 0 nothing is accumulated.

    Args:
        batch_size: The global batch size.
        world_size: The GPUs that share each batch.
        micro: Most samples on each GPU at once, or 0 for any number. The largest divisor of a GPU's share that is not
            above it is used, so that all batches have the same size.

    Raises:
        InputError: The batch size cannot be shared evenly by the GPUs, or an argument is not a whole number.

    >>> split(256, world_size=4)
    BatchSplit(per_device=64, accumulation_steps=1, world_size=4)
    >>> split(256, world_size=4, micro=20)
    BatchSplit(per_device=16, accumulation_steps=4, world_size=4)
    """
    for name, value, least in (("batch size", batch_size, 1), ("world size", world_size, 1), ("micro", micro, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InputError(f"{name} {value!r}: give a whole number of at least {least}.")
    share, rest = divmod(batch_size, world_size)
    if rest:
        raise InputError(
            f"batch size {batch_size} cannot be shared evenly by {world_size} GPUs. Give a multiple of {world_size}."
        )
    per_device = share if not micro else max(one for one in _divisors(share) if one <= micro)
    return BatchSplit(per_device, share // per_device, world_size)


def smaller(per_device: int) -> int | None:
    """What to try after so many samples did not fit in memory: the next lower power of two. None after 1.

    >>> smaller(64), smaller(48), smaller(1)
    (32, 32, None)
    """
    return None if per_device <= 1 else 1 << ((per_device - 1).bit_length() - 1)


def _divisors(number: int) -> set[int]:
    low = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return {*low, *(number // one for one in low)}
