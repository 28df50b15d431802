"""Marks each full hour (UTC) while windows are open, so that the energy of a long window can be split by the hour."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from zeus.device.cpu_counters import CpuReadings
from zeus.device.gpu import Clock, Ticker
from zeus.monitor.fork import renew_after_fork
from zeus.monitor.meter import Mark
from zeus.tariff.rates import SECONDS_PER_HOUR

MOST = 10_000  # hours kept: more than a year
SNAP_SECONDS = 1.0  # a mark this near to a full hour is taken as the hour


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment: on both clocks, on every card's curve, and on the CPU counters."""

    moment: float
    wall: float
    marks: dict[int, Mark]
    cpus: CpuReadings


class HourMarks:
    """Takes an instant at the beginning of each hour of the wall clock.

    Args:
        clock: The clock of the monitor.
        take: Takes an instant now.
        each_hour: Called at the beginning of each hour.
    """

    def __init__(self, clock: Clock, take: Callable[[], Instant], each_hour: Callable[[], None]) -> None:
        self._clock, self._take, self._each_hour = clock, take, each_hour
        self._found: deque[Instant] = deque(maxlen=MOST)
        self._ticker: Ticker | None = None
        self._lock = threading.Lock()
        self._closed = False
        renew_after_fork(self)

    def start(self) -> None:
        """Begin to mark hours, if that has not begun. A forked process has to begin anew."""
        if self._ticker is None:
            with self._lock:
                if self._ticker is None and not self._closed:
                    self._arm()
                    self._each_hour()

    def between(self, begin: Instant, end: Instant) -> list[Instant]:
        """The hours that began between two instants."""
        return [one for one in list(self._found) if begin.moment < one.moment < end.moment]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._ticker is not None:
                self._ticker.stop(wait=0)

    def after_fork(self) -> None:
        """In a forked child the thread is gone."""
        self._lock, self._ticker = threading.Lock(), None

    def _arm(self) -> None:
        """Wait for the next full hour. A timer that fired a little early must not wait for the same hour again."""
        wall = self._clock.wall()
        following = (round_hour(wall) // SECONDS_PER_HOUR + 1) * SECONDS_PER_HOUR
        speed = float(getattr(self._clock, "speed", 1.0))
        self._ticker = self._clock.every((following - wall) * speed, self._hour)

    def _hour(self) -> None:
        self._found.append(self._take())
        with self._lock:
            if self._ticker is not None:
                self._ticker.stop(wait=0)
            if not self._closed:
                self._arm()
        self._each_hour()


def round_hour(wall: float) -> float:
    """The wall-clock time, moved to a full hour if it is very near to one.

    >>> round_hour(7199.9), round_hour(7000.0)
    (7200.0, 7000.0)
    """
    nearest = round(wall / SECONDS_PER_HOUR) * float(SECONDS_PER_HOUR)
    return nearest if abs(nearest - wall) <= SNAP_SECONDS else wall
