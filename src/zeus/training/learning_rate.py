"""Scales the learning rate with the batch size (§6.1): by the square root for Adam and its kin, linearly for SGD."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from zeus.errors import InputError

RULES: Final[Mapping[str, Callable[[float], float]]] = {
    "sqrt": math.sqrt,  # adaptive optimizers: gradient noise falls with the square root of the batch size
    "linear": lambda ratio: ratio,  # plain SGD: k times the batch allows k times the step
    "none": lambda _: 1.0,
}


def scale(base: float, base_batch_size: int, batch_size: int, rule: str = "sqrt") -> float:
    """The learning rate for `batch_size`, given the rate `base` for `base_batch_size`.

    >>> scale(0.1, 128, 512, "sqrt"), scale(0.1, 128, 512, "linear"), scale(0.1, 128, 512, "none")
    (0.2, 0.4, 0.1)
    """
    if not (base > 0 and math.isfinite(base)):
        raise InputError(f"learning rate {base!r}: give a number above 0.")
    for size in (base_batch_size, batch_size):
        if isinstance(size, bool) or not (1 <= size < math.inf and size == int(size)):
            raise InputError(f"batch size {size!r}: give a whole number of at least 1.")
    if rule not in RULES:
        raise InputError(f"learning-rate rule {rule!r}: give one of {', '.join(RULES)}.")
    return base * RULES[rule](batch_size / base_batch_size)
