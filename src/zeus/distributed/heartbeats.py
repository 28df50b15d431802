"""Which ranks are lost: how long each has sent no heartbeat, and the message about it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of a value: the ranks that did not come, and what each of them has done instead.

    >>> print(Lost({1: "ended", 3: "ended"}))
    ranks 1 and 3 have ended
    """

    ranks: dict[int, str]

    def __str__(self) -> str:
        whys = dict.fromkeys(self.ranks.values())
        return " and ".join(f"{_names([n for n, its in self.ranks.items() if its == why])} {why}" for why in whys)


def loss_among(values: Iterable[object]) -> Lost | None:
    """All losses among these values in one; None if there is none."""
    lost = {rank: why for value in values if isinstance(value, Lost) for rank, why in value.ranks.items()}
    return Lost(dict(sorted(lost.items()))) if lost else None


def _names(ranks: list[int]) -> str:
    """Names ranks as the subject of "has" or "have".

    >>> _names([3]), _names([1, 3])
    ('rank 3 has', 'ranks 1 and 3 have')
    """
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last} have" if others else f"rank {last} has"


class Heartbeats:
    """How long other ranks have not beaten, by the time that this rank itself was awake. Any thread may use it.

    A scheduler may stop all ranks of a job at once and continue them later, one a little before the other. So time in
    which this rank did not look is not held against the others.

    Args:
        now: The time in seconds.
        longest: Most seconds that may pass between two looks of a rank that is awake.

    >>> times = iter([0.0, 0.0, 3.0, 63.0])
    >>> heartbeats = Heartbeats(lambda: next(times), longest=4.0)
    >>> [heartbeats.silence(1, b"7") for look in range(3)]
    [0.0, 3.0, 7.0]
    """

    def __init__(self, now: Callable[[], float], longest: float) -> None:
        self._now, self._longest = now, longest
        self._looked, self._awake = now(), 0.0
        self._last: dict[int, tuple[bytes, float]] = {}  # of each rank: the last beat seen, and when it was new
        self._lock = threading.Lock()

    def silence(self, rank: int, beat: bytes) -> float:
        """Seconds since this beat of this rank was new, from the first look at it on."""
        with self._lock:
            now = self._now()
            self._awake += min(now - self._looked, self._longest)
            self._looked = now
            if rank not in self._last or self._last[rank][0] != beat:
                self._last[rank] = beat, self._awake
            return self._awake - self._last[rank][1]
