"""Random numbers for one trial. Each trial has its own stream, so any decision can be repeated alone.

The draws follow from a hash of the job's seed and the trial's number. A new stream takes a microsecond. A new
`random.Random` takes ten times as long, which would slow down a replay of a million recurrences.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from math import cos, log, sin, sqrt, tau

_WORDS = struct.Struct("8Q")
_UNIT = 2.0**-64
_TURN = tau * _UNIT


class Stream:
    """A stream of normally distributed draws.

    >>> Stream(7, 1).gauss(0.0, 1.0) == Stream(7, 1).gauss(0.0, 1.0) != Stream(7, 2).gauss(0.0, 1.0)
    True
    """

    __slots__ = ("_ahead", "_block", "_key")

    def __init__(self, seed: int | None, number: int) -> None:
        self._key = f"{seed}:{number}"
        self._block = 0
        self._ahead: list[float] = []

    def gauss(self, mu: float, sigma: float) -> float:
        """One draw from a normal distribution."""
        if not self._ahead:
            self._fill()
        return mu + sigma * self._ahead.pop()

    def _fill(self) -> None:
        """Box and Muller's transformation: two normal draws from two uniform ones."""
        a, b, c, d, *angles = _WORDS.unpack(blake2b(f"{self._key}:{self._block}".encode()).digest())
        self._block += 1
        for first, second in zip((a, b, c, d), angles, strict=True):
            radius = sqrt(-2.0 * log((first + 1) * _UNIT))
            angle = second * _TURN
            self._ahead += (radius * cos(angle), radius * sin(angle))
