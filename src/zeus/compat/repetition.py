"""`zeus.profile.measure` of the existing package: the energy of a function, called again and again for some seconds.

The sweeps repeat that for several durations, to find how long to measure and how long to let the GPU cool down before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from zeus.device.clock import REAL, clock_of
from zeus.device.gpu import Capability, Clock
from zeus.errors import InputError
from zeus.monitor import Measurement, ZeusMonitor

SECONDS = tuple(float(seconds) for seconds in range(1, 11))  # durations that a sweep tries by default
MEASURED, COOLED = "measurement_duration", "cooldown_duration"

_WINDOW = "zeus.profile.measure"


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
        for value, one in zip(self.sweep_param[1], self.entries, strict=True):
            verdict = "valid" if one.is_valid else "too much scatter"
            lines.append(f"{value:8g} s  {one.energy_mean:.4g} ± {one.energy_std:.2g} J per call  {verdict}")
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
    subject = _Subject(target_function, zeus_monitor, num_warmup_iterations)
    return subject.trial(measurement_duration, cooldown_duration, subject.calibrate(num_calibration_iterations))


def profile_measurement_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration: float = 10.0,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    iteration_duration: float | None = None,
) -> SweepReport:
    """Measure for each of these durations, several times, and report the scatter."""
    subject = _Subject(target_function, zeus_monitor, num_warmup_iterations)
    each = iteration_duration or subject.calibrate(num_calibration_iterations)
    pairs = [(seconds, cooldown_duration) for seconds in measurement_duration_search_range or SECONDS]
    results = subject.sweep(pairs, each, num_trials, num_warmup_trials, trial_stddev_threshold)
    return SweepReport((MEASURED, [pair[0] for pair in pairs]), (COOLED, cooldown_duration), results)


def profile_cooldown_duration(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    cooldown_duration_search_range: Sequence[float] | None = None,
    measurement_duration: float = 10.0,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
    iteration_duration: float | None = None,
) -> SweepReport:
    """Measure after each of these pauses, several times, and report the scatter."""
    subject = _Subject(target_function, zeus_monitor, num_warmup_iterations)
    each = iteration_duration or subject.calibrate(num_calibration_iterations)
    pairs = [(measurement_duration, seconds) for seconds in cooldown_duration_search_range or SECONDS]
    results = subject.sweep(pairs, each, num_trials, num_warmup_trials, trial_stddev_threshold)
    return SweepReport((COOLED, [pair[1] for pair in pairs]), (MEASURED, measurement_duration), results)


def profile_parameters(
    target_function: Callable[[], Any],
    zeus_monitor: ZeusMonitor,
    measurement_duration_search_range: Sequence[float] | None = None,
    cooldown_duration_search_range: Sequence[float] | None = None,
    num_trials: int = 10,
    num_warmup_trials: int = 2,
    trial_stddev_threshold: float = 0.01,
    num_warmup_iterations: int = 10,
    num_calibration_iterations: int = 100,
) -> tuple[SweepReport, SweepReport]:
    """Both sweeps: each with the longest duration of the other. The GPU is warmed up once, before the first."""
    subject = _Subject(target_function, zeus_monitor, num_warmup_iterations)
    each = subject.calibrate(num_calibration_iterations)
    measured = list(measurement_duration_search_range or SECONDS)
    cooled = list(cooldown_duration_search_range or SECONDS)
    first = [(seconds, max(cooled)) for seconds in measured]
    second = [(max(measured), seconds) for seconds in cooled]
    return (
        SweepReport(
            (MEASURED, measured),
            (COOLED, max(cooled)),
            subject.sweep(first, each, num_trials, num_warmup_trials, trial_stddev_threshold),
        ),
        SweepReport(
            (COOLED, cooled),
            (MEASURED, max(measured)),
            subject.sweep(second, each, num_trials, 0, trial_stddev_threshold),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Subject:
    """A function and the monitor that measures it."""

    function: Callable[[], Any]
    monitor: ZeusMonitor
    warmup: int

    @property
    def _clock(self) -> Clock:
        return next((clock_of(gpu) for gpu in self.monitor.gpus.values()), REAL)

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
        self._clock.sleep(pause)
        before = self._celsius()
        self._call(self.warmup)
        used = self._measured(calls)
        joules = used.total_energy
        return TrialResult(joules / calls, used.time / calls, joules, used.time, calls, before, self._celsius())

    def sweep(
        self, pairs: Sequence[tuple[float, float]], each: float, trials: int, warmup_trials: int, threshold: float
    ) -> list[SweepResult]:
        """A result for each pair of durations: to measure, and to cool down."""
        if trials < 1:
            raise InputError(f"num_trials={trials}: give at least 1.")
        for _ in range(warmup_trials):
            self.trial(*pairs[0], each)
        return [_summary(pair, [self.trial(*pair, each) for _ in range(trials)], threshold) for pair in pairs]

    def _call(self, times: int) -> None:
        for _ in range(times):
            self.function()

    def _measured(self, calls: int) -> Measurement:
        self.monitor.begin_window(_WINDOW, restart=True)
        self._call(calls)
        return self.monitor.end_window(_WINDOW, cancel=True)

    def _celsius(self) -> float:
        able = [gpu for gpu in self.monitor.gpus.values() if Capability.TEMPERATURE in gpu.spec.capabilities]
        return fmean(gpu.temperature() for gpu in able) if able else math.nan


def _summary(pair: tuple[float, float], trials: list[TrialResult], threshold: float) -> SweepResult:
    joules = [one.energy_per_iter for one in trials]
    scatter = stdev(joules) if len(joules) > 1 else 0.0
    return SweepResult(
        *pair,
        trials,
        fmean(joules),
        scatter,
        fmean(one.temperature_before for one in trials),
        fmean(one.temperature_after for one in trials),
        fmean(one.total_time for one in trials),
        fmean(one.total_energy for one in trials),
        scatter < threshold,
    )
