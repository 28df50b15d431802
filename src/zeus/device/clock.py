"""Clocks: the machine's own, a faster one, and a virtual one that moves only by `sleep`.

A clock runs actions in threads of its own. A forked child has none of them; see `zeus.fork`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from zeus.device.gpu import Clock, Gpu, Ticker

log = logging.getLogger(__name__)


class RealClock:
    """The machine's clock. At `speed` 10, ten of its seconds pass in one real second."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed

    def now(self) -> float:
        """Monotonic seconds, the same in every process on this machine."""
        return time.monotonic() * self.speed

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds) / self.speed)

    def every(self, seconds: float, action: Callable[[], None]) -> Ticker:
        """Run the action on a daemon thread every `seconds`."""
        return _ThreadTicker(seconds / self.speed, action)


class _ThreadTicker:
    def __init__(self, seconds: float, action: Callable[[], None]) -> None:
        self._seconds = seconds
        self._action = action
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zeus-ticker", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._action()
            except Exception:  # go on: the next reading may work, and nobody would notice a dead thread
                log.warning("A background reading failed; Zeus will try again.", exc_info=True)

    def stop(self, wait: float = 10.0) -> None:
        self._over.set()
        if wait and self._thread is not threading.current_thread():
            self._thread.join(wait)


@dataclass(slots=True)
class _Timer:
    seconds: float
    action: Callable[[], None]
    over: bool = False

    def stop(self, wait: float = 0.0) -> None:
        self.over = True


class VirtualClock:
    """A clock without threads or waiting: only `sleep` moves it, and it runs the actions that fall due, in order.

    >>> clock = VirtualClock()
    >>> clock.sleep(2.5)
    >>> clock.now()
    2.5
    """

    speed = 1.0
    EPOCH = 1_700_000_000.0  # the wall clock starts at a fixed time, so that runs repeat to the byte

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self.wall_offset = self.EPOCH  # a test steps the wall clock by adding to this
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Timer]] = []
        self._lock = threading.RLock()

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self.now() + self.wall_offset

    def sleep(self, seconds: float) -> None:
        self.move_to(self.now() + max(0.0, seconds))

    def move_to(self, moment: float) -> None:
        """Move time forward to this moment and run the actions due on the way. Never moves time back."""
        with self._lock:
            while self._due and self._due[0][0] <= moment:
                due, _, timer = heapq.heappop(self._due)
                if timer.over:
                    continue
                self._set(max(due, self.now()))
                heapq.heappush(self._due, (due + timer.seconds, next(self._order), timer))
                timer.action()
            self._set(max(moment, self.now()))

    def every(self, seconds: float, action: Callable[[], None]) -> Ticker:
        """Run the action every `seconds` of virtual time."""
        timer = _Timer(seconds, action)
        with self._lock:
            heapq.heappush(self._due, (self.now() + seconds, next(self._order), timer))
        return timer

    def _set(self, moment: float) -> None:
        self._now = moment


REAL = RealClock()


def clock_of(gpu: Gpu) -> Clock:
    """The clock that this card's energy is measured by: a virtual card's own, otherwise the machine's."""
    clock: Clock = getattr(gpu, "clock", REAL)
    return clock


def common_clock(gpus: Iterable[Gpu]) -> Clock:
    """The clock of these cards, which share one. Without cards, the machine's."""
    return next(map(clock_of, gpus), REAL)
