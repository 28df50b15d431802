"""Retries: how long to wait for a store or service, and when not to try at all.

    try ──▶ answer ──▶ done
     ▲  └──▶ no answer ──▶ patience left? ──no──▶ StoreError, then rest for 15 s, then 30, 60, 120
     └────── back off, with jitter ◀──┘yes

During a rest, a training loop does not try, and everybody else tries once, for 3 s at most. So an unreachable store
costs a training one wait, not one per epoch.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from zeus.errors import StoreError
from zeus.settings import time_limits

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0  # seconds between tries


class Failed(StoreError):
    """The service answered, but failed at this request."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits, in seconds."""

    tries: float  # for all tries together; 0: a single try, for what must not be repeated
    answer: float  # for the answer to one try
    rests: bool = False  # whether not to try at all during a rest

    @classmethod
    def to_begin(cls, seconds: float) -> Patience:
        """For the start of a run, which may wait this long."""
        return cls(seconds, min(10.0, max(1.0, seconds)))


ONCE = Patience(0.0, 120.0)  # deleting, importing


def quick() -> Patience:
    """Inside a training loop."""
    return replace(soon(), rests=True)


def soon() -> Patience:
    """For messages that can also be delivered later."""
    limits = time_limits()
    return Patience(limits.store_retry, limits.store_answer)


def look() -> Patience:
    """For answers that a person waits for."""
    return Patience(time_limits().store_retry, 30.0)


class Contact:
    """Calls a store or service with retries, and remembers whether it answered. Safe to use from several threads.

    Args:
        name: Name of the store or service, for messages.
        clock: Returns the time in seconds.
        sleep: Sleeps for the given number of seconds.
        rng: Jitter, so that many clients do not retry at once.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.clock, self.sleep = clock, sleep
        self._rng = rng or random.Random()
        self._rest, self._rest_until = 0.0, clock()

    @property
    def rests(self) -> bool:
        """Whether it was unreachable a moment ago."""
        return self.clock() < self._rest_until

    def call(self, request: Callable[[float], T], patience: Patience) -> T:
        """Call `request` with the seconds that it may take, and again while it raises StoreError. Returns its result.

        Raises:
            StoreError: No try succeeded.
        """
        limits, rests = time_limits(), self.rests
        if rests and patience.rests:
            raise StoreError(f"{self.name} did not answer a moment ago.")
        until, wait = self.clock() + (0.0 if rests else patience.tries), FIRST_WAIT
        seconds = min(patience.answer, soon().answer) if rests else patience.answer
        while True:
            try:
                found = request(seconds)
            except StoreError:
                pause = wait * self._rng.uniform(0.5, 1.0)
                if self.clock() + pause > until:
                    self._rest = min(2 * self._rest, limits.store_longest_rest) or limits.store_rest
                    self._rest_until = self.clock() + self._rest
                    raise
                self.sleep(pause)
                wait = min(2 * wait, LONGEST_WAIT)
            except Exception:
                self._answered()  # a refusal is an answer too
                raise
            else:
                self._answered()
                return found

    def _answered(self) -> None:
        self._rest, self._rest_until = 0.0, self.clock()
