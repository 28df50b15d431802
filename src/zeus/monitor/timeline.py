"""Power and temperature over time: readings kept in the background and looked up by wall-clock time."""

from __future__ import annotations

import math
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

from zeus.device.clock import REAL, clock_of
from zeus.device.find import find
from zeus.device.gpu import Capability, Clock, Gpu
from zeus.errors import InputError
from zeus.monitor.fork import renew_after_fork

UPDATE_SECONDS = 0.1
KEEP = 1_000_000  # readings of each GPU, 16 bytes each, where nobody says how many: more than a day of them


class Series:
    """The last so many readings of one quantity on one GPU: (moment, value), oldest first."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._moments, self._values = array("d"), array("d")

    def append(self, moment: float, value: float) -> None:
        """Add the newest; the oldest make room for it, now and then and many at a time."""
        self._moments.append(moment)
        self._values.append(value)
        if len(self._moments) > self.keep + self.keep // 4:
            del self._moments[: -self.keep], self._values[: -self.keep]

    def at(self, moment: float) -> float | None:
        """The last value at or before this moment."""
        k = bisect_right(self._moments, moment, self._first)
        return None if k == self._first else self._values[k - 1]

    def all(self) -> list[tuple[float, float]]:
        """All that are kept."""
        return list(zip(self._moments[self._first :], self._values[self._first :], strict=True))

    @property
    def _first(self) -> int:
        return max(0, len(self._moments) - self.keep)


class SeriesRecorder:
    """Readings of one quantity on several GPUs, on the monotonic clock. One that repeats counts like any other."""

    def __init__(
        self, gpus: dict[int, Gpu], read: Callable[[Gpu], float], period: float | None, keep: int | None
    ) -> None:
        if period is not None and not period > 0:
            raise InputError(f"update_period={period!r}: give seconds above 0, or None for {UPDATE_SECONDS}.")
        if keep is not None and keep < 2:
            raise InputError(f"max_samples_per_gpu={keep!r}: keep at least 2 samples, or None for {KEEP}.")
        self.gpus = gpus
        clocks = [clock_of(gpu) for gpu in gpus.values()]
        self.clock: Clock = clocks[0] if clocks else REAL
        self._read = read
        self._lock = threading.Lock()
        self._readings = {i: Series(KEEP if keep is None else keep) for i in gpus}
        self.period = UPDATE_SECONDS if period is None else period
        self._look()
        self._watch()
        renew_after_fork(self)

    def _watch(self) -> None:
        own = weakref.ref(self)  # the thread must not keep alive what it serves

        def look() -> None:
            recorder = own()
            if recorder is not None:
                recorder._look()

        self._forked = False
        self.stop = weakref.finalize(self, self.clock.every(self.period, look).stop, wait=0)  # a driver may hang

    def after_fork(self) -> None:
        """In a forked child the thread is gone, and the lock may be held by it for ever."""
        self._lock = threading.Lock()
        self._forked = self.stop.alive

    def _wake(self) -> None:
        """A child that asks gets a thread of its own; one that does not, such as a data loader's worker, gets none."""
        if self._forked:
            self._look()
            self._watch()

    @property
    def reach(self) -> float:
        """Seconds for which a reading stands, before and after itself."""
        return max(1.0, 3 * self.period)

    def _look(self) -> None:
        for index, gpu in self.gpus.items():
            try:
                value = self._read(gpu)
            except Exception:
                continue  # a moment without a reading is a gap, not a zero
            with self._lock:
                self._readings[index].append(self.clock.now(), value)

    def moment(self, time: float) -> float:
        """When this wall-clock time was or will be on the clock of the readings, which may run faster."""
        return self.clock.now() + (time - self.clock.wall()) * self._speed

    def _wall(self, readings: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        now, wall, speed = self.clock.now(), self.clock.wall(), self._speed
        return [(wall + (moment - now) / speed, value) for moment, value in readings]

    @property
    def _speed(self) -> float:
        return float(getattr(self.clock, "speed", 1.0))

    def at(self, time: float | None) -> dict[int, float] | None:
        """The last reading at or before this wall-clock time; None where some GPU has none."""
        self._wake()
        moment = math.inf if time is None else self.moment(time)
        found: dict[int, float] = {}
        with self._lock:
            for index, readings in self._readings.items():
                value = readings.at(moment)
                if value is None:
                    return None
                found[index] = value
        return found

    def line(self, index: int, start: float | None, end: float | None) -> list[tuple[float, float]]:
        """(wall-clock time, value) of one GPU between two wall-clock times."""
        low = -math.inf if start is None else self.moment(start)
        high = math.inf if end is None else self.moment(end)
        return self._wall(r for r in self.readings(index) if low <= r[0] <= high)

    def readings(self, index: int) -> list[tuple[float, float]]:
        """(moment, value) of one GPU, all that are kept."""
        self._wake()
        with self._lock:
            return self._readings[index].all()

    def lines(self, index: int | None, start: float | None, end: float | None) -> dict[int, list[tuple[float, float]]]:
        """`line` for one GPU or for all."""
        if index is not None and index not in self.gpus:
            raise InputError(f"gpu_index={index!r} is not watched. Watched: {list(self.gpus)}.")
        return {i: self.line(i, start, end) for i in (self.gpus if index is None else [index])}


def integrate(line: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Area under a line of (moment, watts) between two moments: trapezoids, the outermost readings held to the ends.

    >>> integrate([(0.0, 300.0), (5.0, 300.0), (10.0, 300.0)], 0.0, 10.0)
    3000.0
    """
    if not line:
        return math.nan
    points = [(start, _held(line, start)), *(p for p in line if start < p[0] < end), (end, _held(line, end))]
    return sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairwise(points))


def _watched(line: Sequence[tuple[float, float]], start: float, end: float, reach: float) -> bool:
    """Whether all of this time lies within reach of a reading."""
    if not line or start < line[0][0] - reach or end > line[-1][0] + reach:
        return False
    return all(t1 - t0 <= 2 * reach or t1 <= start or end <= t0 for (t0, _), (t1, _) in pairwise(line))


def _averages(line: Sequence[tuple[float, float]], seconds: float = 1.0) -> list[tuple[float, float]]:
    """Each reading replaced by the mean of the second before it."""
    first, averages = 0, []
    for k, (t, _) in enumerate(line):
        while first + 1 < k and line[first + 1][0] <= t - seconds:
            first += 1
        averages.append((t, integrate(line[first : k + 1], t - seconds, t) / seconds))
    return averages


def _held(line: Sequence[tuple[float, float]], moment: float) -> float:
    k = bisect_right(line, moment, key=lambda p: p[0])
    if k in (0, len(line)):
        return line[min(k, len(line) - 1)][1]
    (t0, w0), (t1, w1) = line[k - 1], line[k]
    return w0 + (w1 - w0) * (moment - t0) / (t1 - t0)


class PowerDomain(StrEnum):
    """Which power of a card."""

    DEVICE_INSTANT = "device_instant"
    DEVICE_AVERAGE = "device_average"  # over the last second
    MEMORY_AVERAGE = "memory_average"  # no driver call we use tells it: its timeline is empty


class PowerMonitor:
    """Samples the power of GPUs in the background. Times are wall-clock seconds, as `time.time()` gives them.

    The last `max_samples_per_gpu` readings of each GPU are kept, a million where that is None.

    >>> from zeus.device.virtual import VirtualMachine
    >>> machine = VirtualMachine.in_memory("v100")
    >>> monitor = PowerMonitor(gpus={0: machine.gpus[0]})
    >>> begin = machine.clock.wall()
    >>> machine.run([0], seconds=10, watts=300)
    >>> round(monitor.get_energy(begin + 1, begin + 9)[0], 3)
    2400.0
    """

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        update_period: float | None = None,
        max_samples_per_gpu: int | None = None,
        power_domains: Sequence[PowerDomain | str] | None = None,
        *,
        gpus: dict[int, Gpu] | None = None,
    ) -> None:
        domains = list(PowerDomain) if power_domains is None else [_domain(d) for d in power_domains]
        self.power_domains = domains
        watched = find(gpu_indices) if gpus is None else gpus
        able = {i: g for i, g in watched.items() if Capability.POWER in g.spec.capabilities}
        self.gpu_indices = list(watched)
        self._recorder = SeriesRecorder(able, _power, update_period, max_samples_per_gpu)

    def get_power(self, time: float | None = None) -> dict[int, float] | None:
        """Watts by GPU at this time (now if None); None before the first reading."""
        return self._recorder.at(time)

    def get_energy(self, start_time: float, end_time: float) -> dict[int, float] | None:
        """Joules by GPU between two times, from the power readings; None where some of that time was not watched."""
        if end_time < start_time:
            raise InputError(f"get_energy: the end ({end_time}) is before the start ({start_time}).")
        kept = self._recorder
        start, end = kept.moment(start_time), kept.moment(end_time)
        energy = {}
        for index in kept.gpus:
            readings = kept.readings(index)
            if not _watched(readings, start, end, kept.reach):
                return None  # a sum would leave out what was used meanwhile, or invent it
            energy[index] = integrate(readings, start, end)
        return energy or None

    def get_power_timeline(
        self,
        power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, list[tuple[float, float]]]:
        """(time, watts) by GPU."""
        domain = _domain(power_domain)
        lines = self._recorder.lines(gpu_index, start_time, end_time)
        if domain is PowerDomain.MEMORY_AVERAGE:
            return {i: [] for i in lines}
        if domain is PowerDomain.DEVICE_AVERAGE:
            return {i: _averages(line) for i, line in lines.items()}
        return lines

    def stop(self) -> None:
        """Stop sampling; what was recorded stays."""
        self._recorder.stop()


class TemperatureMonitor:
    """Samples the temperature of GPUs in the background; degrees Celsius, times as in `PowerMonitor`."""

    def __init__(
        self,
        gpu_indices: Sequence[int] | None = None,
        update_period: float | None = None,
        max_samples_per_gpu: int | None = None,
        *,
        gpus: dict[int, Gpu] | None = None,
    ) -> None:
        watched = find(gpu_indices) if gpus is None else gpus
        able = {i: g for i, g in watched.items() if Capability.TEMPERATURE in g.spec.capabilities}
        self.gpu_indices = list(watched)
        self._recorder = SeriesRecorder(able, lambda gpu: gpu.temperature(), update_period or 1.0, max_samples_per_gpu)

    def get_temperature(self, time: float | None = None) -> dict[int, float] | None:
        """Degrees by GPU at this time (now if None); None before the first reading."""
        return self._recorder.at(time)

    def get_temperature_timeline(
        self, gpu_index: int | None = None, start_time: float | None = None, end_time: float | None = None
    ) -> dict[int, list[tuple[float, float]]]:
        """(time, degrees) by GPU."""
        return self._recorder.lines(gpu_index, start_time, end_time)

    def stop(self) -> None:
        """Stop sampling; what was recorded stays."""
        self._recorder.stop()


def _power(gpu: Gpu) -> float:
    return gpu.power()


def _domain(name: PowerDomain | str) -> PowerDomain:
    try:
        return PowerDomain(name)
    except ValueError:
        known = ", ".join(d.value for d in PowerDomain)
        raise InputError(f"power domain {name!r} is not known. Known: {known}.") from None
