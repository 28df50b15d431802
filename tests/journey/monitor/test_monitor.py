"""Measuring, from begin_window to joules: on a virtual card, on a simulated sensor, and on NVML itself."""

from __future__ import annotations

import csv
import logging
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.nvml.fake import FakeNvml
from support.nvml.fake_time import FakeTime
from support.programs import python_env, run_python
from support.sensors import FlakyCounter, SensedGpu, Sensors
from support.waiting import eventually
from zeus.device.clock import VirtualClock
from zeus.device.cpu import CpuCounters, CpuPackage
from zeus.device.nvml import nvml_gpus
from zeus.device.virtual import VirtualMachine
from zeus.errors import InputError, WindowError
from zeus.monitor import Measurement, PowerMonitor, TemperatureMonitor, ZeusMonitor
from zeus.monitor.timeline import KEEP, Series


@pytest.fixture
def machine() -> VirtualMachine:
    return VirtualMachine.in_memory("v100", count=2)


@pytest.fixture
def monitor(machine: VirtualMachine) -> ZeusMonitor:
    return ZeusMonitor(gpus=dict(enumerate(machine.gpus)))


# ------------------------------------------------------------------------------------------------ windows


def test_windows_nest_and_overlap(machine: VirtualMachine, monitor: ZeusMonitor) -> None:
    monitor.begin_window("outer")
    machine.run([0, 1], seconds=2, watts=[100.0, 200.0])
    monitor.begin_window("inner")
    machine.run([0, 1], seconds=3, watts=[100.0, 200.0])
    outer = monitor.end_window("outer")
    machine.run([0, 1], seconds=1, watts=[100.0, 200.0])
    inner = monitor.end_window("inner")
    assert (outer.time, outer.gpu_energy) == (5.0, {0: 500.0, 1: 1000.0})
    assert (inner.time, inner.total_energy) == (4.0, 1200.0)
    assert outer.sources == {0: "model", 1: "model"}
    assert outer.errors == {0: 0.0, 1: 0.0}


def test_a_window_begun_twice_is_an_error_unless_restarted(machine: VirtualMachine, monitor: ZeusMonitor) -> None:
    monitor.begin_window("a")
    with pytest.raises(ValueError, match="'a' is already open"):
        monitor.begin_window("a")
    machine.clock.sleep(5)
    monitor.begin_window("a", restart=True)
    machine.clock.sleep(1)
    assert monitor.end_window("a").time == 1.0
    with pytest.raises(ValueError, match="'a' is not open"):
        monitor.end_window("a")
    monitor.begin_window("a")
    monitor.reset_windows()
    with pytest.raises(WindowError, match="Open windows: none"):
        monitor.end_window("a")


def test_a_card_that_is_busy_while_a_window_is_split_loses_nothing(machine: VirtualMachine) -> None:
    class Passing(VirtualClock):
        """Time passes with each look at it, as it does for a monitor whose process is slow."""

        def now(self) -> float:
            self._now += 1.0
            return self._now

    monitor = ZeusMonitor(gpus=dict(enumerate(machine.gpus)), clock=(clock := Passing()))
    monitor.begin_window("epoch")
    begun = clock._now
    seconds = [monitor.split_window("epoch").time for _ in range(3)] + [monitor.end_window("epoch").time]
    assert sum(seconds) == pytest.approx(clock._now - begun, abs=1.0)  # the wall clock looks at the time once more
    with pytest.raises(WindowError, match="'epoch' is not open"):
        monitor.split_window("epoch")


def test_a_block_that_raises_is_measured_and_its_window_closed(machine: VirtualMachine, monitor: ZeusMonitor) -> None:
    with pytest.raises(RuntimeError, match="boom"), monitor.window("epoch") as window:
        machine.run([0], seconds=1, watts=100)
        raise RuntimeError("boom")
    assert window.seconds == 1.0
    with monitor.window("epoch") as again:
        with pytest.raises(WindowError, match="still open"):
            _ = again.joules
        machine.clock.sleep(1)
    assert again.seconds == 1.0


def test_a_measurement_travels_between_processes(machine: VirtualMachine, monitor: ZeusMonitor) -> None:
    monitor.begin_window("a")
    machine.run([0], seconds=1, watts=100)
    measured = monitor.end_window("a")
    copy = pickle.loads(pickle.dumps(measured))
    assert copy == measured
    assert copy.sources == measured.sources
    assert "gpu_energy={0: 100.0" in repr(measured)
    assert Measurement(time=1.0, gpu_energy={0: 100.0}) != measured


def test_an_unknown_energy_makes_the_total_unknown() -> None:
    assert math.isnan(Measurement(time=1.0, gpu_energy={0: 100.0, 1: math.nan}).total_energy)
    assert math.isnan(Measurement(time=1.0, gpu_energy={}).total_energy)


def test_a_card_that_disappears_is_unavailable_and_the_training_goes_on(
    machine: VirtualMachine, monitor: ZeusMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    monitor.begin_window("a")
    machine.run([0, 1], seconds=1, watts=100)
    machine.lose(1)
    with caplog.at_level(logging.WARNING, "zeus"):
        measured = monitor.end_window("a")
    assert measured.gpu_energy[0] == 100.0
    assert math.isnan(measured.gpu_energy[1])
    assert measured.sources[1] == "unavailable"
    assert "disappeared" in caplog.text


def test_nothing_is_known_of_gpus_where_there_are_none() -> None:
    monitor = ZeusMonitor(gpus={})
    with monitor.window("a") as window:
        pass
    assert window.measurement is not None
    assert window.measurement.gpu_energy == {}
    assert math.isnan(window.joules)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="sync_execution_with"):
        ZeusMonitor(gpus={}, sync_execution_with="tensorflow")
    with pytest.raises(InputError, match="cpu_indices"):
        ZeusMonitor(gpus={}, cpu_indices=[99])


# ------------------------------------------------------------------------------------------------ the CPU


def test_a_cpu_counter_that_fails_in_a_window_leaves_its_energy_unknown() -> None:
    """Left out, the CPU would look as if it had used nothing."""
    machine = VirtualMachine.in_memory("v100")
    cpu, dram = FlakyCounter(100.0), FlakyCounter(10.0)
    counters = CpuCounters([CpuPackage(0, "package-0", cpu, dram)])
    monitor = ZeusMonitor(gpus={0: machine.gpus[0]}, cpus=counters)
    with monitor.window("sound") as sound:
        machine.run([0], seconds=2, watts=200)
    monitor.begin_window("broken")
    machine.run([0], seconds=2, watts=200)
    cpu.broken = True
    broken = monitor.end_window("broken")
    assert sound.measurement is not None
    assert (sound.measurement.cpu_energy, sound.measurement.dram_energy) == ({0: 200.0}, {0: 20.0})
    assert broken.cpu_energy is not None and math.isnan(broken.cpu_energy[0])
    assert (broken.gpu_energy, broken.dram_energy) == ({0: 400.0}, {0: 20.0})


# ------------------------------------------------------------------------------------------------ the log file


def test_the_log_appends_a_line_a_window(machine: VirtualMachine, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "windows.csv"
    for run in range(2):
        monitor = ZeusMonitor(gpus=dict(enumerate(machine.gpus)), log_file=path)
        begin = machine.clock.wall()
        monitor.begin_window("epoch")
        machine.run([0, 1], seconds=2, watts=100)
        monitor.end_window("epoch")
        monitor.begin_window("cancelled")
        monitor.end_window("cancelled", cancel=True)
        monitor.close()
        rows = list(csv.reader(path.read_text().splitlines()))
        assert rows[0] == ["start_time", "window_name", "elapsed_time", "gpu0_energy", "gpu1_energy"]
        assert rows[run + 1] == [str(begin), "epoch", "2.0", "200.0", "200.0"]
        assert len(rows) == run + 2
    with pytest.raises(InputError, match="other GPUs"):
        ZeusMonitor(gpus={0: machine.gpus[0]}, log_file=path)


def test_a_logged_line_is_written_once_its_samples_are_in_not_at_the_next_window(
    fake_nvml: FakeNvml, tmp_path: Path
) -> None:
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock, log_file=tmp_path / "w.csv")
    monitor.begin_window("epoch")
    clock.sleep(1)
    monitor.end_window("epoch")
    assert len((tmp_path / "w.csv").read_text().splitlines()) == 1
    clock.sleep(5)
    assert len((tmp_path / "w.csv").read_text().splitlines()) == 2
    monitor.close()


def test_a_log_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    gpus = {0: VirtualMachine.in_memory("v100").gpus[0]}
    (tmp_path / "file").touch()
    for path, why in ((tmp_path, "Is a directory"), (tmp_path / "file" / "w.csv", "File exists|Not a directory")):
        with pytest.raises(InputError, match=f"log_file='{path}' cannot be opened: ({why})"):
            ZeusMonitor(gpus=gpus, log_file=path)


# ------------------------------------------------------------------------------------------------ sensors


def test_300_watts_for_ten_seconds_are_3000_joules_whatever_the_card_can_tell(fake_nvml: FakeNvml) -> None:
    expected = {
        (): "counter+samples",
        ("counter",): "integrated",
        ("samples",): "counter",
        ("counter", "samples"): "integrated",
        ("samples", "power", "instant"): "counter",
    }
    for missing, source in expected.items():
        clock = FakeTime(fake_nvml)
        card = fake_nvml.cards[0]
        card.heal()
        card.power_watts = 300
        for group in missing:
            card.fail(group, "not_supported")
        clock.sleep(5)
        monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
        clock.sleep(1)
        monitor.begin_window("w")
        clock.sleep(10)
        measured = monitor.end_window("w")
        assert measured.gpu_energy[0] == pytest.approx(3000, abs=max(measured.errors[0], 1)), missing
        assert measured.errors[0] < 150
        assert measured.sources[0] == source, missing
        monitor.close()


def test_neither_counter_nor_power_is_unavailable_and_never_zero(fake_nvml: FakeNvml) -> None:
    for group in ("counter", "samples", "power", "instant"):
        fake_nvml.cards[0].fail(group, "not_supported")
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    with monitor.window("w") as window:
        clock.sleep(10)
    assert math.isnan(window.joules)
    assert window.measurement is not None
    assert window.measurement.sources == {0: "unavailable"}
    monitor.close()


def test_a_counter_that_stands_still_is_outvoted_by_the_samples(fake_nvml: FakeNvml) -> None:
    """Otherwise a busy card would come to cost nothing."""
    clock = FakeTime(fake_nvml)
    card = fake_nvml.cards[0]
    card.power_watts = 300
    clock.sleep(5)
    card.fail("counter", "stuck")
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    monitor.begin_window("w")
    clock.sleep(10)
    assert monitor.end_window("w").joules == pytest.approx(3000, rel=0.01)
    clock.sleep(300)
    monitor.begin_window("w")
    clock.sleep(10)
    measured = monitor.end_window("w")
    assert measured.joules == pytest.approx(3000, rel=0.01)
    assert measured.sources == {0: "integrated"}
    monitor.close()


@pytest.mark.parametrize("step", [3600.0, -3600.0, 1.0, -1.0])
def test_a_wall_clock_step_changes_nothing(fake_nvml: FakeNvml, step: float) -> None:
    clock = FakeTime(fake_nvml)
    fake_nvml.cards[0].pulses(high=600, low=100, period=2.0, duty=0.5, start=fake_nvml.now())
    clock.sleep(5)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    windows = []
    for i in range(12):
        monitor.begin_window("w")
        begin = clock.now()
        clock.sleep(0.7)
        if i == 5:
            fake_nvml.step_wall(step)
        clock.sleep(0.8)
        windows.append((monitor.end_window("w"), fake_nvml.cards[0].joules(begin, clock.now())))
    monitor.close()
    for measured, exact in windows:
        assert measured.time == pytest.approx(1.5)
        assert measured.joules == pytest.approx(exact, rel=0.05)


def test_a_reader_in_a_hurry_waits_only_until_the_samples_have_arrived(fake_nvml: FakeNvml) -> None:
    clock = FakeTime(fake_nvml)
    fake_nvml.cards[0].power_watts = 300
    clock.sleep(5)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    monitor.begin_window("w")
    clock.sleep(0.05)
    measured = monitor.end_window("w")
    end = clock.now()
    assert measured.joules == pytest.approx(15, abs=measured.error)
    assert clock.now() - end < 0.25
    monitor.close()


def test_beginning_and_ending_a_window_does_not_call_the_driver(fake_nvml: FakeNvml) -> None:
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    groups = ("counter", "samples", "power", "instant")
    before = [fake_nvml.cards[0].reads(g) for g in groups]
    for _ in range(100):
        monitor.begin_window("w")
        monitor.end_window("w")
    assert [fake_nvml.cards[0].reads(g) for g in groups] == before
    monitor.close()


def test_a_gpu_lost_in_the_middle_is_unavailable_from_there_on(
    fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus=dict(enumerate(nvml_gpus())), clock=clock)
    monitor.begin_window("w")
    clock.sleep(3)
    fake_nvml.cards[1].lose()
    clock.sleep(3)
    measured = monitor.end_window("w")
    assert measured.gpu_energy[0] == pytest.approx(124 * 6, rel=0.02)
    assert math.isnan(measured.gpu_energy[1])
    assert "unavailable from now on" in caplog.text
    monitor.close()


def test_a_noisy_jittery_sensor_that_misses_samples_stays_within_its_bound() -> None:
    machine = VirtualMachine.in_memory("h200")
    gpu = SensedGpu(machine.gpus[0], Sensors(noise=0.01, jitter=0.003, missed=0.05))
    monitor = ZeusMonitor(gpus={0: gpu})
    within = 0
    for i in range(60):
        machine.clock.sleep(0.07 + 0.0031 * i % 0.05)
        begin = machine.gpus[0].energy()
        monitor.begin_window("w")
        gpu.run(0.05 + 0.01 * (i % 5), 300.0 + 5 * i)
        measured = monitor.end_window("w")
        exact = machine.gpus[0].energy() - begin
        within += abs(measured.joules - exact) <= measured.error
    assert within >= 57
    monitor.close()


# ------------------------------------------------------------------------------------------------ processes and threads


def test_windows_of_many_threads_do_not_disturb_each_other(machine: VirtualMachine, monitor: ZeusMonitor) -> None:
    wrong = []

    def work(name: str) -> None:
        for _ in range(200):
            monitor.begin_window(name)
            if math.isnan(monitor.end_window(name).total_energy):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_goes_on_measuring(fake_nvml: FakeNvml) -> None:
    fake_nvml.cards[0].power_watts = 300
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]})
    monitor.begin_window("w")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            time.sleep(0.2)
            measured = monitor.end_window("w")
            status = 0 if measured.joules > 0 and measured.seconds >= 0.2 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert monitor.end_window("w").joules > 0
    monitor.close()


RANK = """
import os, sys
from zeus.monitor import ZeusMonitor
own = [int(os.environ["LOCAL_RANK"])] if "own" in sys.argv else None
monitor = ZeusMonitor(gpu_indices=own)
monitor.begin_window("w")
print("ready", flush=True)
sys.stdin.readline()
for gpu in monitor.gpus.values():
    pass
measured = monitor.end_window("w")
print(sorted(measured.gpu_energy), None if measured.cpu_energy is None else sorted(measured.cpu_energy), flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize(("asks", "seen"), [([], ["[0, 1] [0]", "[] None"]), (["own"], ["[0] [0]", "[1] None"])])
def test_ranks_never_count_a_gpu_or_the_cpu_twice(tmp_path: Path, asks: list[str], seen: list[str]) -> None:
    """Whoever sums over ranks must get each card and the node's CPU once, also if each rank names its own card."""
    env = os.environ | {
        "ZEUS_GPU": "virtual:v100x2?cpu=100",
        "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_PORT": "12345",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, *asks],
            env=env | {"LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        assert rank.stdout is not None and rank.stdin is not None
        assert rank.stdout.readline() == "ready\n"
    counted = []
    for rank in ranks:
        assert rank.stdout is not None and rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
        counted.append(rank.stdout.readline().strip())
    for rank in ranks:
        rank.communicate("\n")
    assert counted == seen


def test_a_stranger_on_the_gpu_is_warned_of_once(fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    orphan_parent = subprocess.run(
        ["sh", "-c", "setsid sleep 600 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    orphan = int(orphan_parent.stdout)
    try:
        eventually(lambda: os.getsid(orphan) == orphan)  # setsid may not have had its turn yet
        fake_nvml.cards[0].processes = [os.getpid(), stranger.pid, orphan]
        clock = FakeTime(fake_nvml)
        for _ in range(2):
            ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock).close()
        warnings = [r.getMessage() for r in caplog.records if "also used by" in r.getMessage()]
        assert len(warnings) == 1
        assert f"by other processes ({orphan}). " in warnings[0]  # and by no other: a child of ours is ours
    finally:
        stranger.kill()
        stranger.wait()
        os.kill(orphan, 9)


# ------------------------------------------------------------------------------------------------ timelines


def test_a_power_timeline_counts_repeated_readings(machine: VirtualMachine) -> None:
    monitor = PowerMonitor(gpus=dict(enumerate(machine.gpus)))
    begin = machine.clock.wall()
    machine.run([0, 1], seconds=10, watts=[300.0, 100.0])
    energy = monitor.get_energy(begin, begin + 10)
    assert energy is not None
    assert energy[0] == pytest.approx(3000, rel=0.01)
    assert energy[1] == pytest.approx(1000, rel=0.01)
    assert monitor.get_power(begin + 5) == {0: 300.0, 1: 100.0}
    line = monitor.get_power_timeline("device_instant", gpu_index=0, start_time=begin + 1, end_time=begin + 2)
    assert list(line) == [0]
    assert len(line[0]) == pytest.approx(10, abs=1)
    assert all(begin + 1 <= t <= begin + 2 and w == 300.0 for t, w in line[0])
    assert monitor.get_power(begin - 1) is None
    with pytest.raises(InputError, match="power domain"):
        monitor.get_power_timeline("nonsense")
    with pytest.raises(InputError, match="not watched"):
        monitor.get_power_timeline("device_instant", gpu_index=7)
    monitor.stop()
    machine.clock.sleep(10)
    assert monitor.get_power_timeline("device_instant", 0)[0][-1][0] <= begin + 10.01


def test_old_samples_make_room(machine: VirtualMachine) -> None:
    monitor = PowerMonitor(gpus={0: machine.gpus[0]}, update_period=0.5, max_samples_per_gpu=4)
    machine.clock.sleep(20)
    assert len(monitor.get_power_timeline("device_instant", 0)[0]) == 4
    with pytest.raises(InputError, match="update_period"):
        PowerMonitor(gpus={0: machine.gpus[0]}, update_period=0)


def test_a_timeline_that_nobody_bounds_is_bounded_all_the_same(machine: VirtualMachine) -> None:
    assert PowerMonitor(gpus={0: machine.gpus[0]})._recorder._readings[0].keep == KEEP
    series = Series(keep=100)
    for second in range(10_000):
        series.append(second, 2.0 * second)
    assert len(series._moments) <= 125
    assert series.around() == [(second, 2.0 * second) for second in range(9_900, 10_000)]
    assert series.at(9_950.5) == (9_950, 2 * 9_950) and series.at(9_899.0) is None


def test_temperature_follows_the_load(machine: VirtualMachine) -> None:
    monitor = TemperatureMonitor(gpus={0: machine.gpus[0]})
    cold = monitor.get_temperature()
    machine.run([0], seconds=10, watts=250)
    line = monitor.get_temperature_timeline(0)[0]
    assert cold is not None
    assert max(value for _, value in line) > cold[0]
    monitor.stop()


def test_a_monitor_that_watches_closely_knows_soon(fake_nvml: FakeNvml) -> None:
    """Profiling asks whether a chunk's energy is known, and never waits for it."""
    clock = FakeTime(fake_nvml)
    fake_nvml.cards[0].power_watts = 300
    clock.sleep(5)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    waits = {}
    for closely in (True, False, True):
        monitor.watch_closely(closely)
        clock.sleep(3)
        monitor.begin_window("w")
        clock.sleep(0.1)
        measured = monitor.end_window("w")
        end = clock.now()
        while not measured.is_ready:
            clock.sleep(0.01)
        waits[closely] = clock.now() - end
        assert measured.joules == pytest.approx(30, rel=0.05)
    assert waits[True] < 0.3
    monitor.close()


# ------------------------------------------------------------------------------------------------ no GPU


def warned(tmp_path: Path, code: str, **more: str) -> str:
    masks = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}
    env = python_env(without=("ZEUS_", "CUDA_", "SLURM_", "RANK"), **masks, **more)
    return run_python("-c", code, env=env).stderr


def test_a_script_that_sees_no_gpu_is_told_once_what_to_do(tmp_path: Path) -> None:
    twice = "from zeus.monitor import ZeusMonitor\nfor _ in range(2): ZeusMonitor()"
    told = warned(tmp_path, twice)
    assert told.count("no GPU is visible (CUDA_VISIBLE_DEVICES=''") == 1
    assert "set ZEUS_GPU=virtual:v100" in told
    assert "Zeus measures only time" in told
    assert warned(tmp_path, twice, RANK="1") == warned(tmp_path, twice, ZEUS_QUIET="1") == ""
    assert warned(tmp_path, "from zeus.monitor import ZeusMonitor; ZeusMonitor([])") == ""  # as was asked for
