"""How long other ranks have been silent, by the time that this rank itself was awake."""

from __future__ import annotations

import threading
from collections.abc import Callable


class SignsOfLife:
    """The last beats of other ranks. Any thread may use it.

    A scheduler may stop all ranks of a job at once and continue them later, one a little before the other. So time in
    which this rank did not look is not held against the others.

    Args:
        now: The time in seconds.
        longest: Most seconds that may pass between two looks of a rank that is awake.

    >>> times = iter([0.0, 0.0, 3.0, 63.0])
    >>> signs = SignsOfLife(lambda: next(times), longest=4.0)
    >>> [signs.silence(1, b"7") for look in range(3)]
    [0.0, 3.0, 7.0]
    """

    def __init__(self, now: Callable[[], float], longest: float) -> None:
        self._now, self._longest = now, longest
        self._looked, self._awake = now(), 0.0
        self._beats: dict[int, tuple[bytes, float]] = {}  # of each rank: the last one seen, and when it was new
        self._lock = threading.Lock()

    def silence(self, rank: int, beat: bytes) -> float:
        """Seconds since this beat of this rank was new, from the first look at it on."""
        with self._lock:
            now = self._now()
            self._awake += min(now - self._looked, self._longest)
            self._looked = now
            if rank not in self._beats or self._beats[rank][0] != beat:
                self._beats[rank] = beat, self._awake
            return self._awake - self._beats[rank][1]
