"""Clocks: the machine's own, a faster one, and a virtual one that moves only by `sleep`."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable

from zeus.device.gpu import Clock, Gpu, Ticker
from zeus.fork import renew_after_fork

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
        return _ThreadTicker(seconds, action, self.speed)


class _ThreadTicker:
    def __init__(self, seconds: float, action: Callable[[], None], speed: float) -> None:
        self._seconds, self._action, self._speed = seconds, action, speed
        self._over = False
        self.after_fork()
        self.wake()
        renew_after_fork(self)

    def after_fork(self) -> None:
        self._lock, self._changed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.is_asleep = not self._over

    def wake(self) -> None:
        with self._lock:
            if not self.is_asleep:
                return
            self.is_asleep = False
        thread = threading.Thread(target=self._run, name="zeus-ticker", daemon=True)
        try:
            thread.start()
        except RuntimeError as why:
            log.warning("No thread can be started, so Zeus reads sensors only when it must: %s", why)
        else:
            self._thread = thread

    def _run(self) -> None:
        while not self._over:
            if self._changed.wait(self._seconds / self._speed):
                self._changed.clear()
                continue
            try:
                self._action()
            except Exception:  # go on: the next reading may work, and nobody would notice a dead thread
                log.warning("A background reading failed; Zeus will try again.", exc_info=True)

    def pace(self, seconds: float) -> None:
        if seconds != self._seconds:
            self._seconds = seconds
            self._changed.set()

    def stop(self, wait: float = 10.0) -> None:
        self._over, self.is_asleep = True, False
        self._changed.set()
        if wait and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(wait)


class _Timer:
    is_asleep = False

    def __init__(self, clock: VirtualClock, seconds: float, action: Callable[[], None]) -> None:
        self._clock, self.seconds, self.action = clock, seconds, action
        self.due: float | None = None  # None: stopped

    def wake(self) -> None:
        """A virtual clock needs no thread."""

    def pace(self, seconds: float) -> None:
        if seconds != self.seconds and self.due is not None:
            self.seconds = seconds
            self._clock.run_at(self._clock.now() + seconds, self)

    def stop(self, wait: float = 0.0) -> None:
        self.due = None


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
                if timer.due != due:  # stopped, or at another pace
                    continue
                self._set(max(due, self.now()))
                self.run_at(due + timer.seconds, timer)
                timer.action()
            self._set(max(moment, self.now()))

    def every(self, seconds: float, action: Callable[[], None]) -> Ticker:
        """Run the action every `seconds` of virtual time."""
        timer = _Timer(self, seconds, action)
        self.run_at(self.now() + seconds, timer)
        return timer

    def run_at(self, moment: float, timer: _Timer) -> None:
        """Run this timer's action when the time comes, and no longer when it was due before."""
        with self._lock:
            timer.due = moment
            heapq.heappush(self._due, (moment, next(self._order), timer))

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
