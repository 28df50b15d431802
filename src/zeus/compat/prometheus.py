"""`zeus.metric` of the existing package: energy and power of windows, pushed to a Prometheus Pushgateway.

Metric names and labels (`window`, `index`) are those of that package, so its dashboards keep working. A gateway that
cannot be reached is logged and never stops a training. An energy that is not known is left out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from zeus.device.gpu import Ticker
from zeus.errors import InputError, WindowError
from zeus.lazy import optional
from zeus.monitor import PowerMonitor, ZeusMonitor

__all__ = ["EnergyCumulativeCounter", "EnergyHistogram", "Metric", "PowerGauge"]

log = logging.getLogger(__name__)

PARTS = ("gpu", "cpu", "dram")


class Metric:
    """Measures windows, and pushes what they used: at their end, and every `update_period` seconds until then."""

    _update: ClassVar[str]  # the method of prometheus-client's metric that takes a value
    _waits: ClassVar[bool] = False  # whether windows wait for the GPUs' work unless the caller decides

    def __init__(self, monitor: Any, update_period: float | None, pushgateway_url: str, job: str) -> None:
        if update_period is not None and not update_period > 0:
            raise InputError(f"update_period={update_period!r}: give seconds above 0.")
        self.update_period, self.pushgateway_url, self.job = update_period, pushgateway_url, job
        self._client = _prometheus()
        self.registry = self._client.CollectorRegistry()
        self._monitor = monitor
        self._metrics: dict[str, Any] = {}  # of prometheus-client, by what they measure: GPUs, CPUs, memory
        self._open: dict[str, Ticker | None] = {}

    def begin_window(self, name: str, sync_execution: bool | None = None) -> None:
        """Begin a window of this name."""
        if name in self._open:
            raise WindowError(f"window '{name}' is already open. End it first.")
        self._begin(name, self._waits if sync_execution is None else sync_execution)
        clock, period = self._monitor.clock, self.update_period
        self._open[name] = None if period is None else clock.every(period, lambda: self._push(name))

    def end_window(self, name: str, sync_execution: bool | None = None) -> None:
        """End it, and push what was measured."""
        if name not in self._open:
            raise WindowError(f"window '{name}' is not open. Open windows: {', '.join(self._open) or 'none'}.")
        if (ticker := self._open.pop(name)) is not None:
            ticker.stop()
        self._push(name, self._waits if sync_execution is None else sync_execution, is_end=True)

    def push(self) -> None:
        """Send everything to the gateway."""
        try:
            self._client.push_to_gateway(self.pushgateway_url, job=self.job, registry=self.registry)
        except OSError as failed:
            log.warning("Nothing was pushed to %s: %s", self.pushgateway_url, failed)

    def _add_metric(self, kind: str, part: str, name: str, **options: Any) -> None:
        make = getattr(self._client, kind)
        what = f"What a window measured on each {part.upper()}."
        self._metrics[part] = make(name, what, ("window", "index"), registry=self.registry, **options)

    def _push(self, name: str, sync_execution: bool = False, *, is_end: bool = False) -> None:
        for part, by_index in self._measured(name, sync_execution, is_end=is_end).items():
            for index, value in (by_index or {}).items():
                if not math.isnan(value):
                    getattr(self._metrics[part].labels(name, str(index)), self._update)(value)
        self.push()

    # Windows of energy. The gauge has its own.

    def _begin(self, name: str, sync_execution: bool) -> None:
        self._monitor.begin_window(name, sync_execution)

    def _measured(self, name: str, sync_execution: bool, *, is_end: bool) -> Mapping[str, Mapping[int, float] | None]:
        measure = self._monitor.end_window if is_end else self._monitor.split_window
        used = measure(name, sync_execution)
        return {part: getattr(used, f"{part}_energy") for part in PARTS}


class EnergyHistogram(Metric):
    """How much windows use: `energy_monitor_{gpu,cpu,dram}_energy_joules`, as histograms."""

    _update, _waits = "observe", True

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
        super().__init__(ZeusMonitor(gpu_indices, cpu_indices), None, pushgateway_url, job)
        for part, bounds in zip(PARTS, (gpu_bucket_range, cpu_bucket_range, dram_bucket_range), strict=True):
            if not bounds:
                raise InputError(f"{part}_bucket_range is empty. Give one bound or more, in joules.")
            self._add_metric("Histogram", part, f"energy_monitor_{part}_energy_joules", buckets=sorted(bounds))


class EnergyCumulativeCounter(Metric):
    """What open windows have used so far: `energy_monitor_{gpu,cpu,dram}_energy_joules`, as counters."""

    _update = "inc"

    def __init__(
        self,
        cpu_indices: Sequence[int] | None,
        gpu_indices: Sequence[int] | None,
        update_period: float,
        pushgateway_url: str,
        job: str,
    ) -> None:
        super().__init__(ZeusMonitor(gpu_indices, cpu_indices), update_period, pushgateway_url, job)
        for part in PARTS:
            self._add_metric("Counter", part, f"energy_monitor_{part}_energy_joules")


class PowerGauge(Metric):
    """What GPUs draw while a window is open: `power_monitor_gpu_power_watts`, as gauges."""

    _update = "set"

    def __init__(self, gpu_indices: Sequence[int] | None, update_period: float, pushgateway_url: str, job: str) -> None:
        super().__init__(PowerMonitor(gpu_indices, update_period), update_period, pushgateway_url, job)
        self._add_metric("Gauge", "gpu", "power_monitor_gpu_power_watts")

    def _begin(self, name: str, sync_execution: bool) -> None:
        """The power is always measured."""

    def _measured(self, name: str, sync_execution: bool, *, is_end: bool) -> Mapping[str, Mapping[int, float] | None]:
        return {"gpu": self._monitor.get_power()}


def _prometheus() -> Any:
    with optional("zeus.metric", "prometheus", "prometheus-client"):
        import prometheus_client
    return prometheus_client
