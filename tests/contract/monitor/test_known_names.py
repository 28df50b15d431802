"""The names that users of the existing package know, called as they call them: by position, keyword and attribute."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import pytest

from support.call_shapes import check_call_shape
from support.cards import VirtualCards
from support.programs import run_python
from zeus.device.virtual import VirtualMachine
from zeus.monitor import Measurement, PowerDomain, PowerMonitor, TemperatureMonitor, ZeusMonitor

PARAMETERS = {
    Measurement: ["time", "gpu_energy", "cpu_energy", "dram_energy", "soc_energy"],
    ZeusMonitor: ["gpu_indices", "cpu_indices", "approx_instant_energy", "log_file", "sync_execution_with"],
    ZeusMonitor.begin_window: ["self", "key", "sync_execution", "restart"],
    ZeusMonitor.end_window: ["self", "key", "sync_execution", "cancel"],
    ZeusMonitor.reset_windows: ["self"],
    PowerMonitor: ["gpu_indices", "update_period", "max_samples_per_gpu", "power_domains"],
    PowerMonitor.get_power: ["self", "time"],
    PowerMonitor.get_energy: ["self", "start_time", "end_time"],
    PowerMonitor.get_power_timeline: ["self", "power_domain", "gpu_index", "start_time", "end_time"],
    PowerMonitor.get_all_power_timelines: ["self", "gpu_index", "start_time", "end_time"],
    PowerMonitor.stop: ["self"],
}
DEFAULTS = {
    ZeusMonitor: (None, None, False, None, "torch"),
    ZeusMonitor.begin_window: (True, False),
    ZeusMonitor.end_window: (True, False),
    PowerMonitor: (None, None, None, None),
    PowerMonitor.get_power: (None,),
}


@pytest.fixture(autouse=True)
def cards(virtual_cards: VirtualCards) -> VirtualMachine:
    return virtual_cards("v100x2?clock=virtual")[0].machine


@pytest.mark.parametrize("name", PARAMETERS, ids=lambda name: name.__qualname__)
def test_positional_parameters_keep_their_names_and_order(name: type) -> None:
    check_call_shape(name, PARAMETERS[name], DEFAULTS.get(name))


def test_a_measurement_is_made_by_position_or_keyword() -> None:
    by_position = Measurement(2.0, {0: 100.0, 1: 50.0}, {0: 7.0}, {0: 3.0}, None)
    by_keyword = Measurement(
        time=2.0, gpu_energy={0: 100.0, 1: 50.0}, cpu_energy={0: 7.0}, dram_energy={0: 3.0}, soc_energy=None
    )
    assert by_position == by_keyword
    assert (by_position.time, by_position.total_energy) == (2.0, 150.0)
    assert (by_position.cpu_energy, by_position.dram_energy, by_position.soc_energy) == ({0: 7.0}, {0: 3.0}, None)
    short = Measurement(1.0, {0: 1.0})
    assert (short.cpu_energy, short.dram_energy, short.soc_energy) == (None, None, None)


def test_a_monitor_as_scripts_use_it(cards: VirtualMachine, tmp_path: Path) -> None:
    monitor = ZeusMonitor([0, 1], None, True, str(tmp_path / "w.csv"), "torch")
    assert (monitor.gpu_indices, monitor.cpu_indices) == ([0, 1], monitor.cpu_indices)
    monitor.begin_window("epoch")
    for _ in range(2):
        monitor.begin_window("step", False)
        cards.run([0, 1], seconds=1, watts=200)
        step = monitor.end_window("step", False)
    epoch = monitor.end_window("epoch", True, False)
    assert isinstance(step, Measurement)
    assert step.gpu_energy == {0: 200.0, 1: 200.0}
    assert (epoch.time, epoch.total_energy) == (2.0, 800.0)
    assert all(isinstance(value, float) for value in (epoch.time, epoch.total_energy, *epoch.gpu_energy.values()))
    monitor.close()
    rows = list(csv.DictReader((tmp_path / "w.csv").read_text().splitlines()))
    assert list(rows[0]) == ["start_time", "window_name", "elapsed_time", "gpu0_energy", "gpu1_energy"]
    assert [row["window_name"] for row in rows] == ["step", "step", "epoch"]


def test_wrong_windows_are_value_errors() -> None:
    monitor = ZeusMonitor(gpu_indices=[0])
    monitor.begin_window("a")
    with pytest.raises(ValueError, match="'a'"):
        monitor.begin_window("a")
    monitor.begin_window("a", restart=True)
    monitor.end_window("a", cancel=True)
    with pytest.raises(ValueError, match="'a'"):
        monitor.end_window("a")
    monitor.begin_window("a")
    monitor.reset_windows()
    monitor.begin_window("a")
    with pytest.raises(RuntimeError, match="CPU"):
        ZeusMonitor(cpu_indices=[99])
    with pytest.raises(ValueError, match="GPU 7"):
        ZeusMonitor(gpu_indices=[7])


def test_gpu_indices_none_is_all_and_counts_within_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ZeusMonitor().gpu_indices == [0, 1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monitor = ZeusMonitor()
    assert monitor.gpu_indices == [0]
    assert monitor.gpus[0].index == 1


def test_a_power_monitor_as_scripts_use_it(cards: VirtualMachine) -> None:
    monitor = PowerMonitor([0], 0.5, 1000, [PowerDomain.DEVICE_INSTANT])
    begin = cards.clock.wall()
    assert monitor.get_power(begin - 10) is None
    assert monitor.get_energy(begin - 100, begin - 90) is None
    cards.run([0], seconds=10, watts=300)
    assert monitor.get_power(begin + 5) == {0: 300.0}
    assert monitor.get_power(time=begin + 5) == {0: 300.0}
    assert monitor.get_energy(begin + 1, begin + 9) == {0: pytest.approx(2400.0)}
    line = monitor.get_power_timeline(PowerDomain.DEVICE_INSTANT, 0, begin + 2, begin + 4)
    assert all(begin + 2 <= time <= begin + 4 and watts == 300.0 for time, watts in line[0])
    assert set(monitor.get_power_timeline(power_domain="device_average", gpu_index=None)) == {0}
    assert set(monitor.get_all_power_timelines()) == {"device_instant"}  # those that it was made for
    assert monitor.get_power(begin + 5, power_domain="device_average") == {0: pytest.approx(300.0)}
    assert monitor.get_power(begin - 10, power_domain=PowerDomain.DEVICE_AVERAGE) is None
    assert monitor.get_energy(begin + 1, begin + 9, power_domain="device_average") == {0: pytest.approx(2400.0)}
    assert monitor.get_power(power_domain="memory_average") is None
    assert monitor.get_energy(begin + 1, begin + 9, power_domain="memory_average") is None
    every = PowerMonitor([0]).get_all_power_timelines(gpu_index=0)
    assert set(every) == {domain.value for domain in PowerDomain}
    assert [set(lines) for lines in every.values()] == [{0}] * 3
    monitor.stop()
    monitor.stop()


def test_a_temperature_monitor_as_scripts_use_it(cards: VirtualMachine) -> None:
    monitor = TemperatureMonitor([0, 1], 0.5, 100)
    cards.run([0], seconds=5, watts=250)
    now = monitor.get_temperature()
    assert now is not None and set(now) == {0, 1}
    assert not any(map(math.isnan, now.values()))
    assert set(monitor.get_temperature_timeline(0)) == {0}
    monitor.stop()


@pytest.mark.parametrize("command", [["zeus.monitor", "--help"], ["zeus.show_env", "--help"], ["zeus.show_env"]])
def test_the_old_command_lines_answer(command: list[str]) -> None:
    done = run_python("-m", *command)
    assert done.stdout and not done.stderr


def test_a_measurement_can_be_written_as_a_dataclass_can() -> None:
    measured = Measurement(2.0, {0: 300.0}, cpu_energy={0: 5.0})
    told = {"time": 2.0, "gpu_energy": {0: 300.0}, "cpu_energy": {0: 5.0}, "dram_energy": None, "soc_energy": None}
    assert dataclasses.asdict(measured) == told
    assert dataclasses.replace(measured, time=3.0) == Measurement(3.0, {0: 300.0}, cpu_energy={0: 5.0})
