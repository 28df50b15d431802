"""Power and temperature over time: recorded in the background, looked up by wall-clock time."""

from __future__ import annotations

import math
import threading
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

from zeus.device.clock import common_clock
from zeus.device.find import find
from zeus.device.gpu import Capability, Gpu
from zeus.errors import InputError
from zeus.fork import renew_after_fork

UPDATE_SECONDS = 0.1
AVERAGE_SECONDS = 1.0  # of the past, for `device_average`
KEEP = 1_000_000  # default number of readings per GPU, 16 bytes each: more than a day


class Series:
    """The last `keep` readings of one quantity on one GPU: (moment, value), oldest first."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._moments, self._values = array("d"), array("d")

    def append(self, moment: float, value: float) -> None:
        """Add the newest reading. Old ones are removed now and then, many at a time."""
        self._moments.append(moment)
        self._values.append(value)
        if len(self._moments) > self.keep + self.keep // 4:
            del self._moments[: -self.keep], self._values[: -self.keep]

    def at(self, moment: float) -> tuple[float, float] | None:
        """The last reading at or before this moment."""
        k = bisect_right(self._moments, moment, self._first)
        return None if k == self._first else (self._moments[k - 1], self._values[k - 1])

    def around(self, low: float = -math.inf, high: float = math.inf) -> list[tuple[float, float]]:
        """The readings between two moments, with the last one before them and the first one after them."""
        begin = max(self._first, bisect_left(self._moments, low, self._first) - 1)
        end = bisect_right(self._moments, high, self._first) + 1
        return list(zip(self._moments[begin:end], self._values[begin:end], strict=True))

    @property
    def _first(self) -> int:
        return max(0, len(self._moments) - self.keep)


class SeriesRecorder:
    """Records one quantity of several GPUs, on the monotonic clock. Repeated values are recorded too."""

    def __init__(
        self, gpus: dict[int, Gpu], read: Callable[[Gpu], float], period: float | None, keep: int | None
    ) -> None:
        if period is not None and not period > 0:
            raise InputError(f"update_period={period!r}: give seconds above 0, or None for {UPDATE_SECONDS} s.")
        if keep is not None and keep < 2:
            raise InputError(f"max_samples_per_gpu={keep!r}: keep at least 2 samples, or None for {KEEP}.")
        self.gpus = gpus
        self.clock = common_clock(gpus.values())
        self._read = read
        self._lock = threading.Lock()
        self._readings = {i: Series(KEEP if keep is None else keep) for i in gpus}
        self.period = UPDATE_SECONDS if period is None else period
        self._look()
        own = weakref.ref(self)  # the thread must not keep the recorder alive

        def look() -> None:
            recorder = own()
            if recorder is not None:
                recorder._look()

        self._ticker = self.clock.every(self.period, look)
        self.stop = weakref.finalize(self, self._ticker.stop, wait=0)  # the driver may hang
        renew_after_fork(self)

    def after_fork(self) -> None:
        """The parent's thread may have held the lock."""
        self._lock = threading.Lock()

    def _wake(self) -> None:
        """Record again in a forked child that asks for readings. Data loader workers never ask."""
        if self._ticker.is_asleep:
            self._look()
            self._ticker.wake()

    @property
    def reach(self) -> float:
        """Seconds before and after a reading for which it is valid."""
        return max(1.0, 3 * self.period)

    def _look(self) -> None:
        for index, gpu in self.gpus.items():
            try:
                value = self._read(gpu)
            except Exception:
                continue  # leave a gap; do not record a 0
            with self._lock:
                self._readings[index].append(self.clock.now(), value)

    def moment(self, time: float) -> float:
        """This wall-clock time on the clock of the readings, which may run faster."""
        return self.clock.now() + (time - self.clock.wall()) * self.clock.speed

    def _wall(self, readings: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        now, wall, speed = self.clock.now(), self.clock.wall(), self.clock.speed
        return [(wall + (moment - now) / speed, value) for moment, value in readings]

    def at(self, time: float | None) -> dict[int, float] | None:
        """The last reading at or before this wall-clock time. None if some GPU has none."""
        self._wake()
        moment = math.inf if time is None else self.moment(time)
        found: dict[int, float] = {}
        with self._lock:
            for index, readings in self._readings.items():
                reading = readings.at(moment)
                if reading is None:
                    return None
                found[index] = reading[1]
        return found

    def average(self, index: int, time: float | None, seconds: float) -> float | None:
        """The mean over some wall-clock seconds before the last reading of one GPU at or before this time."""
        self._wake()
        span, moment = seconds * self.clock.speed, math.inf if time is None else self.moment(time)
        with self._lock:
            last = self._readings[index].at(moment)
            line = [] if last is None else self._readings[index].around(last[0] - span, last[0])
        return None if last is None else integrate(line, last[0] - span, last[0]) / span

    def around(self, index: int, low: float, high: float) -> list[tuple[float, float]]:
        """(moment, value) of one GPU between two moments, and the readings next to them."""
        self._wake()
        with self._lock:
            return self._readings[index].around(low, high)

    def lines(self, index: int | None, start: float | None, end: float | None) -> dict[int, list[tuple[float, float]]]:
        """(wall-clock time, value) by GPU, for one GPU or all, between two wall-clock times."""
        if index is not None and index not in self.gpus:
            raise InputError(f"gpu_index={index!r} is not watched. The watched GPUs are {list(self.gpus)}.")
        low = -math.inf if start is None else self.moment(start)
        high = math.inf if end is None else self.moment(end)
        found = {i: self.around(i, low, high) for i in (self.gpus if index is None else [index])}
        return {i: self._wall(r for r in readings if low <= r[0] <= high) for i, readings in found.items()}


def integrate(line: Sequence[tuple[float, float]], start: float, end: float) -> float:
    """Area under a line of (moment, watts) between two moments, by trapezoids. Outermost readings extend to the ends.

    >>> integrate([(0.0, 300.0), (5.0, 300.0), (10.0, 300.0)], 0.0, 10.0)
    3000.0
    """
    if not line:
        return math.nan
    points = [(start, _held(line, start)), *(p for p in line if start < p[0] < end), (end, _held(line, end))]
    return sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairwise(points))


def _watched(line: Sequence[tuple[float, float]], start: float, end: float, reach: float) -> bool:
    """Whether a valid reading exists for all of this time."""
    if not line or start < line[0][0] - reach or end > line[-1][0] + reach:
        return False
    return all(t1 - t0 <= 2 * reach or t1 <= start or end <= t0 for (t0, _), (t1, _) in pairwise(line))


def _averages(line: Sequence[tuple[float, float]], seconds: float = AVERAGE_SECONDS) -> list[tuple[float, float]]:
    """Replace each reading by the mean of the second before it."""
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
    """Which power of a card to report."""

    DEVICE_INSTANT = "device_instant"
    DEVICE_AVERAGE = "device_average"  # over AVERAGE_SECONDS
    MEMORY_AVERAGE = "memory_average"  # Zeus cannot read it, so its timeline is empty


class PowerMonitor:
    """Samples the power of GPUs in the background. Times are wall-clock seconds, like `time.time()`.

    Args:
        gpu_indices: GPUs to watch, as torch counts them. None means all visible ones.
        update_period: Seconds between two readings. None means 0.1.
        max_samples_per_gpu: How many of the latest readings to keep per GPU. None means a million.
        power_domains: Which power to report. None means all domains.
        gpus: Cards to watch instead of the ones found. For tests and simulations.

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
        self.clock = self._recorder.clock

    @property
    def gpus(self) -> dict[int, Gpu]:
        """The cards that are watched, by index: those that report their power."""
        return dict(self._recorder.gpus)

    def get_power(
        self, time: float | None = None, *, power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT
    ) -> dict[int, float] | None:
        """Watts by GPU at this time, or now. None before the first reading, and for a domain that cannot be read."""
        match _domain(power_domain):
            case PowerDomain.DEVICE_INSTANT:
                return self._recorder.at(time)
            case PowerDomain.DEVICE_AVERAGE:
                found = {i: self._recorder.average(i, time, AVERAGE_SECONDS) for i in self._recorder.gpus}
                known = {i: watts for i, watts in found.items() if watts is not None}
                return known if known and len(known) == len(found) else None
            case PowerDomain.MEMORY_AVERAGE:
                return None

    def get_energy(
        self, start_time: float, end_time: float, *, power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT
    ) -> dict[int, float] | None:
        """Joules by GPU between two times, from the power readings. None if some of that time was not watched.

        Averaging moves power in time but not its sum, so both domains of the device give the same energy.
        """
        if _domain(power_domain) is PowerDomain.MEMORY_AVERAGE:
            return None
        if end_time < start_time:
            raise InputError(f"get_energy: the end ({end_time}) is before the start ({start_time}).")
        kept = self._recorder
        start, end = kept.moment(start_time), kept.moment(end_time)
        energy = {}
        for index in kept.gpus:
            readings = kept.around(index, start, end)
            if not _watched(readings, start, end, kept.reach):
                return None  # a sum would miss energy, or invent it
            energy[index] = integrate(readings, start, end)
        return energy or None

    def get_power_timeline(
        self,
        power_domain: PowerDomain | str = PowerDomain.DEVICE_INSTANT,
        gpu_index: int | None = None,
        start_time: float | None = None,
        end_time: float | None = None,
    ) -> dict[int, list[tuple[float, float]]]:
        """(time, watts) by GPU, for one GPU or all, between two times."""
        domain = _domain(power_domain)
        lines = self._recorder.lines(gpu_index, start_time, end_time)
        if domain is PowerDomain.MEMORY_AVERAGE:
            return {i: [] for i in lines}
        if domain is PowerDomain.DEVICE_AVERAGE:
            return {i: _averages(line) for i, line in lines.items()}
        return lines

    def get_all_power_timelines(
        self, gpu_index: int | None = None, start_time: float | None = None, end_time: float | None = None
    ) -> dict[str, dict[int, list[tuple[float, float]]]]:
        """`get_power_timeline` for each domain of this monitor, by the domain's name."""
        return {
            domain.value: self.get_power_timeline(domain, gpu_index, start_time, end_time)
            for domain in self.power_domains
        }

    def stop(self) -> None:
        """Stop sampling. Recorded readings stay available."""
        self._recorder.stop()


class TemperatureMonitor:
    """Samples the temperature of GPUs in the background, in degrees Celsius. Arguments as in `PowerMonitor`."""

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
        """Degrees by GPU at this time, or now. None before the first reading."""
        return self._recorder.at(time)

    def get_temperature_timeline(
        self, gpu_index: int | None = None, start_time: float | None = None, end_time: float | None = None
    ) -> dict[int, list[tuple[float, float]]]:
        """(time, degrees) by GPU, for one GPU or all, between two times."""
        return self._recorder.lines(gpu_index, start_time, end_time)

    def stop(self) -> None:
        """Stop sampling. Recorded readings stay available."""
        self._recorder.stop()


def _power(gpu: Gpu) -> float:
    return gpu.power()


def _domain(name: PowerDomain | str) -> PowerDomain:
    try:
        return PowerDomain(name)
    except ValueError:
        names = ", ".join(d.value for d in PowerDomain)
        raise InputError(f"power domain {name!r} does not exist. Give one of: {names}.") from None
