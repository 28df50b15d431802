"""`zeus.metric` of the existing package: energy and power of windows, pushed to a Prometheus Pushgateway.

Metric names and labels (`window`, `index`) are those of that package, so its dashboards keep working. A gateway that
cannot be reached is logged and never stops a training. An energy that is not known is left out.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zeus.device.gpu import Ticker
from zeus.errors import InputError, WindowError
from zeus.lazy import optional
from zeus.monitor import Measurement, PowerMonitor, ZeusMonitor

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

__all__ = ["EnergyCumulativeCounter", "EnergyHistogram", "Metric", "PowerGauge"]

log = logging.getLogger(__name__)

LABELS = ("window", "index")
PARTS = ("gpu", "cpu", "dram")


def _energies(measurement: Measurement) -> dict[str, Mapping[int, float]]:
    """Joules of each part by index, without those that are not known."""
    found = dict(zip(PARTS, (measurement.gpu_energy, measurement.cpu_energy, measurement.dram_energy), strict=True))
    return {part: {i: j for i, j in (all_ or {}).items() if not math.isnan(j)} for part, all_ in found.items()}


class Metric(ABC):
    """A metric that is measured in windows and pushed to a gateway."""

    def __init__(self, pushgateway_url: str, job: str) -> None:
        self.pushgateway_url, self.job = pushgateway_url, job
        self._client = _prometheus()
        self.registry = self._client.CollectorRegistry()

    @abstractmethod
    def begin_window(self, name: str, sync_execution: bool = True) -> None:
        """Begin a window of this name."""

    @abstractmethod
    def end_window(self, name: str, sync_execution: bool = True) -> None:
        """End it, and push what was measured."""

    def push(self) -> None:
        """Send everything to the gateway."""
        try:
            self._client.push_to_gateway(self.pushgateway_url, job=self.job, registry=self.registry)
        except OSError as failed:
            log.warning("Nothing was pushed to %s: %s", self.pushgateway_url, failed)


class EnergyHistogram(Metric):
    """How much windows use: `energy_monitor_{gpu,cpu,dram}_energy_joules`, as histograms."""

    def __init__(
        self,
        cpu_indices: Sequence[int] | None,
        gpu_indices: Sequence[int] | None,
        pushgateway_url: str,
        job: str,
        gpu_bucket_range: Sequence[float] = (50.0, 100.0, 200.0, 500.0, 1000.0),
        cpu_bucket_range: Sequence[float] = (10.0, 50.0, 100.0, 500.0, 1000.0),
        dram_bucket_range: Sequence[float] = (5.0, 10.0, 20.0, 50.0, 150.0),
    ) -> None:
        super().__init__(pushgateway_url, job)
        buckets = dict(zip(PARTS, (gpu_bucket_range, cpu_bucket_range, dram_bucket_range), strict=True))
        for part, bounds in buckets.items():
            if not bounds:
                raise InputError(f"{part}_bucket_range is empty. Give one bound or more, in joules.")
        self._monitor = ZeusMonitor(gpu_indices, cpu_indices)
        self._histograms: dict[str, Histogram] = {
            part: self._client.Histogram(*_of_energy(part), LABELS, buckets=sorted(bounds), registry=self.registry)
            for part, bounds in buckets.items()
        }

    def begin_window(self, name: str, sync_execution: bool = True) -> None:
        self._monitor.begin_window(name, sync_execution)

    def end_window(self, name: str, sync_execution: bool = True) -> None:
        for part, energies in _energies(self._monitor.end_window(name, sync_execution)).items():
            for index, joules in energies.items():
                self._histograms[part].labels(name, str(index)).observe(joules)
        self.push()


class _Periodic(Metric):
    """Looks again and again while a window is open, and pushes each time."""

    def __init__(self, update_period: float, pushgateway_url: str, job: str) -> None:
        super().__init__(pushgateway_url, job)
        if not update_period > 0:
            raise InputError(f"update_period={update_period!r}: give seconds above 0.")
        self.update_period = update_period
        self._tickers: dict[str, Ticker] = {}

    def _begin(self, name: str, monitor: ZeusMonitor | PowerMonitor, look: Callable[[str], None]) -> None:
        if name in self._tickers:
            raise WindowError(f"window '{name}' is already open. End it first.")
        clock = monitor.clock
        self._tickers[name] = clock.every(self.update_period, lambda: look(name))

    def _end(self, name: str) -> None:
        if name not in self._tickers:
            raise WindowError(f"window '{name}' is not open. Open windows: {', '.join(self._tickers) or 'none'}.")
        self._tickers.pop(name).stop()


class EnergyCumulativeCounter(_Periodic):
    """What open windows have used so far: `energy_monitor_{gpu,cpu,dram}_energy_joules`, as counters."""

    def __init__(
        self,
        cpu_indices: Sequence[int] | None,
        gpu_indices: Sequence[int] | None,
        update_period: float,
        pushgateway_url: str,
        job: str,
    ) -> None:
        super().__init__(update_period, pushgateway_url, job)
        self._monitor = ZeusMonitor(gpu_indices, cpu_indices)
        self._counters: dict[str, Counter] = {
            part: self._client.Counter(*_of_energy(part), LABELS, registry=self.registry) for part in PARTS
        }

    def begin_window(self, name: str, sync_execution: bool = False) -> None:
        self._monitor.begin_window(name, sync_execution)
        self._begin(name, self._monitor, self._look)

    def end_window(self, name: str, sync_execution: bool = False) -> None:
        self._end(name)
        self._add(name, self._monitor.end_window(name, sync_execution))

    def _look(self, name: str) -> None:
        self._add(name, self._monitor.split_window(name, sync_execution=False))

    def _add(self, name: str, measurement: Measurement) -> None:
        for part, energies in _energies(measurement).items():
            for index, joules in energies.items():
                self._counters[part].labels(name, str(index)).inc(joules)
        self.push()


class PowerGauge(_Periodic):
    """What GPUs draw while a window is open: `power_monitor_gpu_power_watts`, as gauges."""

    def __init__(self, gpu_indices: Sequence[int] | None, update_period: float, pushgateway_url: str, job: str) -> None:
        super().__init__(update_period, pushgateway_url, job)
        self._monitor = PowerMonitor(gpu_indices, update_period)
        self._gauge: Gauge = self._client.Gauge(
            "power_monitor_gpu_power_watts", "Power that a GPU draws.", LABELS, registry=self.registry
        )

    def begin_window(self, name: str, sync_execution: bool = False) -> None:
        self._begin(name, self._monitor, self._look)

    def end_window(self, name: str, sync_execution: bool = False) -> None:
        self._end(name)
        self._look(name)

    def _look(self, name: str) -> None:
        for index, watts in (self._monitor.get_power() or {}).items():
            self._gauge.labels(name, str(index)).set(watts)
        self.push()


def _of_energy(part: str) -> tuple[str, str]:
    return f"energy_monitor_{part}_energy_joules", f"Energy of a window on each {part.upper()}."


def _prometheus() -> Any:
    with optional("zeus.metric", "prometheus", "prometheus-client"):
        import prometheus_client
    return prometheus_client
