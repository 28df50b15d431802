"""Energy by the hour: marks each full hour (UTC) while windows are open, and adds up what was measured in each."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from zeus.cost import GPU_ONLY, Include
from zeus.device.cpu_counters import CpuReadings
from zeus.device.gpu import Clock, Ticker
from zeus.job import Outcome
from zeus.job.hourly import HourlyUse, HourUse
from zeus.monitor.fork import renew_after_fork
from zeus.monitor.meter import Mark
from zeus.tariff.rates import SECONDS_PER_HOUR, Prices, hour_text

if TYPE_CHECKING:
    from zeus.monitor.measurement import Measurement

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


@dataclass(slots=True)
class HourTally:
    """Adds up measured energy by hour while a trial runs, if a price or a carbon intensity is given.

    >>> tally = HourTally(Prices(0.3), joules={498545: 60.0, 498546: 40.0})
    >>> [row.joules for row in tally.hourly(50.0).rows]
    [30.0, 20.0]
    """

    prices: Prices
    include: Include = GPU_ONLY  # whose energy counts
    joules: dict[int, float] = field(default_factory=dict)
    by: str = ""

    def add(self, measurement: Measurement) -> None:
        if not self.prices.is_given:
            return
        found = measurement.by_hour(lambda part: part.use(self.include).joules)
        for hour, used in found.joules.items():
            self.joules[hour] = self.joules.get(hour, 0.0) + max(0.0, used)
        self.by = "time" if "time" in (found.by, self.by) else found.by or self.by

    def priced(self, outcome: Outcome, *, wait: bool = True) -> Outcome:
        """The outcome with its energy by hour."""
        return outcome if outcome.joules is None else replace(outcome, hourly=self.hourly(outcome.joules, wait=wait))

    def hourly(self, joules: float, *, wait: bool = True) -> HourlyUse | None:
        """These joules, spread over the hours as what was measured, with the rates of each hour.

        Without `wait`, an online source is not waited for. None if nothing was measured, or neither a price nor an
        intensity is given.
        """
        total, prices = sum(self.joules.values()), self.prices
        if not prices.is_given or not total > 0:
            return None
        rows = tuple(
            HourUse(hour_text(hour), joules * used / total, *prices.at(hour, wait=wait))
            for hour, used in sorted(self.joules.items())
        )
        several = "curve" if len(rows) > 1 else ""
        has_price, has_carbon = prices.per_kwh is not None, prices.gco2e_per_kwh is not None
        return HourlyUse(rows, self.by or several, prices.currency, has_price, has_carbon)
