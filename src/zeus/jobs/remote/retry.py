"""How long a store or a service is waited for: the same for all, and not again while it is known to be away.

    try ──▶ it answers ──▶ done; it is there
     ▲  └──▶ it is away ──▶ patience left? ──no──▶ StoreError, and it rests: for 15 s, then 30, 60, 120
     └────── back off, with jitter ◀──┘

While it rests, a training loop does not even try, and everybody else tries once, for 3 s at most. So what a store that
is away costs a training is one wait, not one in each epoch.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from zeus.errors import StoreError

T = TypeVar("T")

FIRST_WAIT, LONGEST_WAIT = 0.1, 3.0  # seconds between tries
REST_SECONDS, LONGEST_REST = 15.0, 120.0  # a trial is renewed as seldom as that


class Failed(StoreError):
    """The other side is there, and failed at this very request."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long somebody waits, in seconds."""

    tries: float  # for all tries; 0: one try, for what should not be done twice
    answer: float  # for the answer to one
    rests: bool = False  # not even tried where the other side was away a moment ago

    @classmethod
    def to_begin(cls, seconds: float) -> Patience:
        """Of a run that begins, which may wait so long."""
        return cls(seconds, min(10.0, max(1.0, seconds)))


QUICK = Patience(3.0, 3.0, rests=True)  # inside a training loop
SOON = Patience(3.0, 3.0)  # what can also be delivered later
LOOK = Patience(3.0, 30.0)  # somebody is waiting for it
ONCE = Patience(0.0, 120.0)  # deleting, importing


class Contact:
    """What is known of whether the other side answers. Safe to use from several threads.

    Args:
        name: Of the other side, for people.
        clock: Seconds.
        sleep: Waits so many of them.
        rng: Spreads the tries of many clients.
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
        """Whether it was away a moment ago."""
        return self.clock() < self._rest_until

    def call(self, say: Callable[[float], T], patience: Patience) -> T:
        """What `say` returns. It is called again while it raises StoreError, and given the seconds that it may take.

        Raises:
            StoreError: The other side is away.
        """
        rests = self.rests
        if rests and patience.rests:
            raise StoreError(f"{self.name} was away a moment ago.")
        until, wait = self.clock() + (0.0 if rests else patience.tries), FIRST_WAIT
        seconds = min(patience.answer, SOON.answer) if rests else patience.answer
        while True:
            try:
                found = say(seconds)
            except StoreError:
                pause = wait * self._rng.uniform(0.5, 1.0)
                if self.clock() + pause > until:
                    self._rest = min(2 * self._rest, LONGEST_REST) or REST_SECONDS
                    self._rest_until = self.clock() + self._rest
                    raise
                self.sleep(pause)
                wait = min(2 * wait, LONGEST_WAIT)
            except Exception:
                self._there()  # it answered, if only to refuse
                raise
            else:
                self._there()
                return found

    def _there(self) -> None:
        self._rest, self._rest_until = 0.0, self.clock()
