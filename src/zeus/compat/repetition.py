"""`zeus.profile.measure` of the existing package: the energy of a function, called again and again for some seconds.

The sweeps repeat that for several durations, to find how long to measure and how long to let the GPU cool down before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from zeus.device.gpu import Capability
from zeus.errors import InputError
from zeus.monitor import Measurement, ZeusMonitor

SECONDS = tuple(float(seconds) for seconds in range(1, 11))  # durations that a sweep tries by default


@dataclass
class TrialResult:
    """One measurement, in joules, seconds and degrees Celsius. `iterations` calls of the function ran in it."""

    energy_per_iter: float
    time_per_iter: float
    total_energy: float
    total_time: float
    iterations: int
    temperature_before: float  # NaN if no GPU reports one
    temperature_after: float


@dataclass
class SweepResult:
    """Several measurements with the same durations. It is valid if their scatter is below the threshold."""

    measurement_duration: float
    cooldown_duration: float
    trials: list[TrialResult]
    energy_mean: float  # per call, as is the standard deviation
    energy_std: float
    avg_temperature_before: float
    avg_temperature_after: float
    avg_total_time: float
    avg_total_energy: float
    is_valid: bool


@dataclass
class SweepReport:
    """A sweep: the name and values of what was varied, the name and value of what was not, and a result for each."""

    sweep_param: tuple[str, list[float]]
    fixed_param: tuple[str, float]
    entries: list[SweepResult]

    def __str__(self) -> str:
        lines = [f"{self.sweep_param[0]} (with {self.fixed_param[0]} = {self.fixed_param[1]:g} s)"]
        for value, entry in zip(self.sweep_param[1], self.entries, strict=True):
            verdict = "valid" if entry.is_valid else "too much scatter"
            lines.append(f"{value:8g} s  {entry.energy_mean:.4g} ± {entry.energy_std:.2g} J per call  {verdict}")
        return "\n".join(lines)


@dataclass(frozen=True)
class SweepOptions:
    """How often a sweep measures, and how it begins."""

    num_trials: int = 10
    num_warmup_trials: int = 2
    trial_stddev_threshold: float = 0.01
    num_warmup_iterations: int = 10
    num_calibration_iterations: int = 100
    iteration_duration: float | None = None  # seconds of one call; None: measured

    def __post_init__(self) -> None:
        if self.num_trials < 1:
            raise InputError(f"num_trials={self.num_trials}: give at least 1.")


def measure(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration: float,
    cooldown_duration: float,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
) -> TrialResult:
    """Measure calls of a function for about `measurement_duration` seconds, after a pause and a warm-up.

    Raises:
        InputError: A duration is below 0, or there is no call to calibrate by.
    """
    subject = _Subject(target_function, zeus_monitor, num_warmup_iterations)
    return subject.trial(measurement_duration, cooldown_duration, subject.calibrate(num_calibration_iterations))


def profile_measurement_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration: float = 10.0,
    *arguments: Any,
    **options: Any,
) -> SweepReport:
    """Measure for each of these durations, several times. More arguments are those of `SweepOptions`."""
    values = list(measurement_duration_search_range or SECONDS)
    pairs = [(value, cooldown_duration) for value in values]
    entries = _sweep(target_function, zeus_monitor, pairs, SweepOptions(*arguments, **options))
    return SweepReport(("measurement_duration", values), ("cooldown_duration", cooldown_duration), entries)


def profile_cooldown_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    cooldown_duration_search_range: Sequence[float] | None = None,
    measurement_duration: float = 10.0,
    *arguments: Any,
    **options: Any,
) -> SweepReport:
    """Measure after each of these pauses, several times. More arguments are those of `SweepOptions`."""
    values = list(cooldown_duration_search_range or SECONDS)
    pairs = [(measurement_duration, value) for value in values]
    entries = _sweep(target_function, zeus_monitor, pairs, SweepOptions(*arguments, **options))
    return SweepReport(("cooldown_duration", values), ("measurement_duration", measurement_duration), entries)


def profile_parameters(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration_search_range: Sequence[float] | None = None,
    *arguments: Any,
    **options: Any,
) -> tuple[SweepReport, SweepReport]:
    """Both sweeps, each with the longest duration of the other. More arguments are those of `SweepOptions`."""
    run, pause = measurement_duration_search_range or SECONDS, cooldown_duration_search_range or SECONDS
    return (
        profile_measurement_duration(target_function, zeus_monitor, run, max(pause), *arguments, **options),
        profile_cooldown_duration(target_function, zeus_monitor, pause, max(run), *arguments, **options),
    )


def _sweep(
    function: Callable[[], Any], monitor: ZeusMonitor, pairs: Sequence[tuple[float, float]], options: SweepOptions
) -> list[SweepResult]:
    """A result for each pair of durations: to measure, and to cool down."""
    subject = _Subject(function, monitor, options.num_warmup_iterations)
    each = options.iteration_duration or subject.calibrate(options.num_calibration_iterations)
    for _ in range(options.num_warmup_trials):
        subject.trial(*pairs[0], each)
    return [
        _summary(pair, [subject.trial(*pair, each) for _ in range(options.num_trials)], options.trial_stddev_threshold)
        for pair in pairs
    ]


@dataclass(frozen=True, slots=True)
class _Subject:
    """A function and the monitor that measures it."""

    function: Callable[[], Any]
    monitor: ZeusMonitor
    warmup: int

    def calibrate(self, calls: int) -> float:
        """How many seconds one call takes."""
        if calls < 1:
            raise InputError(f"num_calibration_iterations={calls}: give at least 1.")
        self._call(self.warmup)
        return self._measured(calls).time / calls

    def trial(self, seconds: float, pause: float, each: float) -> TrialResult:
        """One measurement. `each` is the time of one call."""
        if seconds < 0 or pause < 0:
            raise InputError(f"durations of {seconds:g} s and {pause:g} s: give at least 0.")
        calls = max(1, round(seconds / each)) if each > 0 else 1
        self.monitor.clock.sleep(pause)
        before = self._celsius()
        self._call(self.warmup)
        used = self._measured(calls)
        joules = used.total_energy
        return TrialResult(joules / calls, used.time / calls, joules, used.time, calls, before, self._celsius())

    def _call(self, times: int) -> None:
        for _ in range(times):
            self.function()

    def _measured(self, calls: int) -> Measurement:
        with self.monitor.window("zeus.profile.measure") as window:
            self._call(calls)
        assert window.measurement is not None  # the block has ended
        return window.measurement

    def _celsius(self) -> float:
        able = [gpu for gpu in self.monitor.gpus.values() if Capability.TEMPERATURE in gpu.spec.capabilities]
        return fmean(gpu.temperature() for gpu in able) if able else math.nan


def _summary(pair: tuple[float, float], trials: list[TrialResult], threshold: float) -> SweepResult:
    joules = [one.energy_per_iter for one in trials]
    scatter = stdev(joules) if len(joules) > 1 else 0.0
    before, after, time, energy = (
        fmean(getattr(one, name) for one in trials)
        for name in ("temperature_before", "temperature_after", "total_time", "total_energy")
    )
    return SweepResult(*pair, trials, fmean(joules), scatter, before, after, time, energy, scatter < threshold)
