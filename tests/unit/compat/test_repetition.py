"""The energy of a function that is called again and again, on a virtual card and its clock."""

from __future__ import annotations

import pytest

from zeus.compat.repetition import measure, profile_cooldown_duration, profile_measurement_duration, profile_parameters
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError
from zeus.monitor import ZeusMonitor


class Bench:
    """A function that draws 200 W for a tenth of a second, and how often it was called."""

    def __init__(self) -> None:
        self.machine = VirtualMachine.in_memory("v100")
        self.monitor = ZeusMonitor(gpus={0: self.machine.gpus[0]})
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        self.machine.run([0], seconds=0.1, watts=200)


def test_a_function_is_called_for_as_long_as_asked() -> None:
    bench = Bench()
    begin = bench.machine.clock.now()
    result = measure(bench, bench.monitor, 5.0, 3.0, num_warmup_iterations=2, num_calibration_iterations=10)
    assert (result.iterations, bench.calls) == (50, 2 + 10 + 2 + 50)
    assert result.energy_per_iter == pytest.approx(20.0)
    assert result.time_per_iter == pytest.approx(0.1)
    assert (result.total_energy, result.total_time) == (pytest.approx(1000.0), pytest.approx(5.0))
    assert result.temperature_after > 0
    assert bench.machine.clock.now() - begin == pytest.approx(6.4 + 3.0)  # the calls, and the pause


def test_sweeps_report_each_duration_and_whether_it_scatters() -> None:
    bench = Bench()
    few = {"num_trials": 3, "num_warmup_trials": 1, "num_warmup_iterations": 1, "num_calibration_iterations": 2}
    first, second = profile_parameters(bench, bench.monitor, [1.0, 2.0], [0.5, 4.0], **few)
    assert (first.sweep_param, first.fixed_param) == (
        ("measurement_duration", [1.0, 2.0]),
        ("cooldown_duration", 4.0),
    )
    assert (second.sweep_param, second.fixed_param) == (
        ("cooldown_duration", [0.5, 4.0]),
        ("measurement_duration", 2.0),
    )
    for entry in (*first.entries, *second.entries):
        assert entry.is_valid and len(entry.trials) == 3
        assert (entry.energy_mean, entry.energy_std) == (pytest.approx(20.0), pytest.approx(0.0, abs=1e-6))
    assert [entry.avg_total_time for entry in first.entries] == [pytest.approx(1.0), pytest.approx(2.0)]
    assert "valid" in str(first)
    alone = profile_measurement_duration(bench, bench.monitor, [1.0], 0.0, iteration_duration=0.1, num_trials=1)
    assert alone.entries[0].energy_std == 0.0
    assert profile_cooldown_duration(bench, bench.monitor, [1.0], 1.0, num_trials=2).entries[0].cooldown_duration == 1.0


def test_durations_and_numbers_that_make_no_sense_are_refused() -> None:
    bench = Bench()
    with pytest.raises(InputError, match="at least 0"):
        measure(bench, bench.monitor, -1.0, 0.0)
    with pytest.raises(InputError, match="num_calibration_iterations=0"):
        measure(bench, bench.monitor, 1.0, 0.0, num_calibration_iterations=0)
    with pytest.raises(InputError, match="num_trials=0"):
        profile_measurement_duration(bench, bench.monitor, [1.0], num_trials=0)
