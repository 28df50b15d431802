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

RUN, PAUSE = "measurement_duration", "cooldown_duration"
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
    subject = target_function, zeus_monitor, num_warmup_iterations
    return _trial(
        *subject, _seconds_of_a_call(*subject, num_calibration_iterations), measurement_duration, cooldown_duration
    )


def profile_measurement_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration: float = 10.0,
    *arguments: Any,
    **options: Any,
) -> SweepReport:
    """Measure for each of these durations, several times. More arguments are those of `_sweep`."""
    values = measurement_duration_search_range or SECONDS
    return _sweep(RUN, values, cooldown_duration, target_function, zeus_monitor, *arguments, **options)


def profile_cooldown_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    cooldown_duration_search_range: Sequence[float] | None = None,
    measurement_duration: float = 10.0,
    *arguments: Any,
    **options: Any,
) -> SweepReport:
    """Measure after each of these pauses, several times. More arguments are those of `_sweep`."""
    values = cooldown_duration_search_range or SECONDS
    return _sweep(PAUSE, values, measurement_duration, target_function, zeus_monitor, *arguments, **options)


def profile_parameters(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration_search_range: Sequence[float] | None = None,
    *arguments: Any,
    **options: Any,
) -> tuple[SweepReport, SweepReport]:
    """Both sweeps, each with the longest duration of the other. More arguments are those of `_sweep`."""
    runs, pauses = measurement_duration_search_range or SECONDS, cooldown_duration_search_range or SECONDS
    return (
        _sweep(RUN, runs, max(pauses), target_function, zeus_monitor, *arguments, **options),
        _sweep(PAUSE, pauses, max(runs), target_function, zeus_monitor, *arguments, **options),
    )


def _sweep(
    varied: str,
    values: Sequence[float],
    fixed: float,
    function: Callable[[], Any],
    monitor: ZeusMonitor,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    iteration_duration: float | None = None,  # seconds of one call; None: measured
) -> SweepReport:
    if num_trials < 1:
        raise InputError(f"num_trials={num_trials}: give at least 1.")
    subject = function, monitor, num_warmup_iterations
    each = iteration_duration or _seconds_of_a_call(*subject, num_calibration_iterations)
    pairs = [(value, fixed) if varied == RUN else (fixed, value) for value in values]
    for _ in range(num_warmup_trials):
        _trial(*subject, each, *pairs[0])
    entries = []
    for pair in pairs:
        trials = [_trial(*subject, each, *pair) for _ in range(num_trials)]
        joules = [one.energy_per_iter for one in trials]
        scatter = stdev(joules) if num_trials > 1 else 0.0
        before, after, time, energy = (
            fmean(getattr(one, name) for one in trials)
            for name in ("temperature_before", "temperature_after", "total_time", "total_energy")
        )
        is_valid = scatter < trial_stddev_threshold
        entries.append(SweepResult(*pair, trials, fmean(joules), scatter, before, after, time, energy, is_valid))
    return SweepReport((varied, list(values)), (PAUSE if varied == RUN else RUN, fixed), entries)


def _seconds_of_a_call(function: Callable[[], Any], monitor: ZeusMonitor, warmup: int, calls: int) -> float:
    if calls < 1:
        raise InputError(f"num_calibration_iterations={calls}: give at least 1.")
    return _measured(function, monitor, warmup, calls).time / calls


def _trial(
    function: Callable[[], Any], monitor: ZeusMonitor, warmup: int, each: float, seconds: float, pause: float
) -> TrialResult:
    """One measurement. `each` is the time of one call."""
    if seconds < 0 or pause < 0:
        raise InputError(f"durations of {seconds:g} s and {pause:g} s: give at least 0.")
    calls = max(1, round(seconds / each)) if each > 0 else 1
    monitor.clock.sleep(pause)
    before = _celsius(monitor)
    used = _measured(function, monitor, warmup, calls)
    joules, took = used.total_energy, used.time
    return TrialResult(joules / calls, took / calls, joules, took, calls, before, _celsius(monitor))


def _measured(function: Callable[[], Any], monitor: ZeusMonitor, warmup: int, calls: int) -> Measurement:
    for _ in range(warmup):
        function()
    monitor.begin_window("zeus.profile.measure", restart=True)
    for _ in range(calls):
        function()
    return monitor.end_window("zeus.profile.measure")


def _celsius(monitor: ZeusMonitor) -> float:
    able = [gpu for gpu in monitor.gpus.values() if Capability.TEMPERATURE in gpu.spec.capabilities]
    return fmean(gpu.temperature() for gpu in able) if able else math.nan
