"""When something goes wrong around a measurement: it ends as unknown or in a word in the log, never in the training."""

from __future__ import annotations

import csv
import logging
import math
import os
import sys
import threading
import types
from pathlib import Path

import pytest

from support.nvml.fake import FakeNvml
from support.sensors import SensedGpu, Sensors
from support.waiting import PATIENCE_SECONDS
from zeus.device.clock import RealClock, VirtualClock
from zeus.device.gpu import PowerSample
from zeus.device.nvml import nvml_gpus
from zeus.device.virtual import VirtualMachine
from zeus.errors import DeviceError
from zeus.monitor import ZeusMonitor
from zeus.monitor.meter import Meter, SampledMeter, Stamp
from zeus.monitor.sample_curve import SAMPLE_BUFFER, StampMapper

pytestmark = pytest.mark.usefixtures("warm")


def sensed(**sensors: float) -> SensedGpu:
    return SensedGpu(VirtualMachine.in_memory("h200").gpus[0], Sensors(**sensors))  # type: ignore[arg-type]


def stamp(meter: Meter, moment: float) -> Stamp:
    taken = Stamp(moment)
    meter.mark(taken)
    return taken


def in_time(action, *arguments) -> None:
    """Run it in a thread, so that a deadlock is a failure and not a test that never ends."""
    thread = threading.Thread(target=action, args=arguments, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "it hangs"


# ------------------------------------------------------------------------------------------------ the log file


def test_closing_a_monitor_right_after_a_window_writes_its_line_and_returns(tmp_path: Path) -> None:
    gpu = sensed()
    monitor = ZeusMonitor(gpus={0: gpu}, log_file=tmp_path / "w.csv")
    gpu.clock.sleep(3)
    for _ in range(3):
        monitor.begin_window("w")
        gpu.run(0.2, 300.0)
        monitor.end_window("w")
    in_time(monitor.close)
    rows = list(csv.reader((tmp_path / "w.csv").read_text().splitlines()))
    assert [float(row[3]) for row in rows[1:]] == pytest.approx([60.0] * 3, rel=0.05)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here, the disk that is always full")
def test_a_full_disk_costs_the_log_and_not_the_training(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    gpu = VirtualMachine.in_memory("v100").gpus[0]
    (tmp_path / "w.csv").write_text("start_time,window_name,elapsed_time,gpu0_energy\n")
    monitor = ZeusMonitor(gpus={0: gpu}, log_file=tmp_path / "w.csv")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, monitor._log._file.fileno())  # type: ignore[union-attr]
    os.close(full)
    for _ in range(3):
        with monitor.window("w") as window:
            gpu.clock.sleep(1)
        assert window.joules > 0
    monitor.close()
    assert caplog.text.count("cannot be written") == 1


def test_a_forked_child_does_not_write_the_lines_of_its_parent(tmp_path: Path) -> None:
    gpu = sensed()
    path = tmp_path / "w.csv"
    monitor = ZeusMonitor(gpus={0: gpu}, log_file=path)
    gpu.clock.sleep(3)
    monitor.begin_window("parent")
    gpu.run(0.2, 300.0)
    monitor.end_window("parent")
    child = os.fork()
    if child == 0:
        try:
            with monitor.window("child"):
                gpu.run(5, 300.0)
            gpu.clock.sleep(5)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    in_time(monitor.close)
    names = [row[1] for row in csv.reader(path.read_text().splitlines()[1:])]
    assert sorted(names) == ["child", "parent"]


def test_ranks_that_begin_one_log_together_write_one_header(tmp_path: Path) -> None:
    gpus = {0: VirtualMachine.in_memory("v100").gpus[0]}
    monitors: list[ZeusMonitor] = []
    gate = threading.Barrier(8)

    def begin() -> None:
        gate.wait()
        monitors.append(ZeusMonitor(gpus=gpus, log_file=tmp_path / "w.csv"))

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for monitor in monitors:
        monitor.close()
    assert (tmp_path / "w.csv").read_text().count("start_time") == 1


# ------------------------------------------------------------------------------------------------ the card


def test_many_windows_on_a_card_that_is_gone_take_no_memory(fake_nvml: FakeNvml) -> None:
    fake_nvml.freeze(at=1000.0)
    clock = VirtualClock(1000.0)
    meter = SampledMeter(nvml_gpus()[0], clock)
    stamp(meter, 1000.0)
    fake_nvml.cards[0].lose()
    clock.sleep(10)
    marks = [stamp(meter, clock.now()) for _ in range(1000)]
    assert len(meter._pending) == 0
    assert meter.ready(marks[0])
    assert math.isnan(meter.read(marks[0], marks[1]).joules)


def test_a_binding_that_raises_anything_at_all_makes_energy_unknown_and_nothing_worse(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(SensedGpu):
        broken = False

        def samples(self) -> list[PowerSample]:
            if self.broken:
                raise KeyError("a driver that answers nonsense")
            return super().samples()

    gpu = Broken(VirtualMachine.in_memory("h200").gpus[0])
    monitor = ZeusMonitor(gpus={0: gpu})
    gpu.clock.sleep(3)
    gpu.broken = True
    with monitor.window("w") as window:
        gpu.run(1.0, 300.0)
    assert math.isnan(window.joules)
    assert caplog.text.count("nonsense") == 1
    monitor.close()


def test_what_happened_before_the_first_reading_is_unknown_not_zero() -> None:
    class Late(SensedGpu):
        late = True

        def energy(self) -> float:
            if self.late:
                raise DeviceError("the driver is not up yet")
            return super().energy()

    gpu = Late(VirtualMachine.in_memory("h200").gpus[0], Sensors(sample_period=0, power=False))
    monitor = ZeusMonitor(gpus={0: gpu})
    with monitor.window("early") as early:
        gpu.run(10.0, 300.0)
    gpu.late = False
    gpu.clock.sleep(10)
    assert math.isnan(early.joules)
    with monitor.window("later") as later:
        gpu.run(10.0, 300.0)
    assert later.joules == pytest.approx(3000, abs=later.error)
    monitor.close()


def test_a_counter_taken_away_leaves_the_samples(fake_nvml: FakeNvml) -> None:
    """Also over a gap in the samples, which would otherwise wait for the counter for ever."""
    gpu = sensed()
    meter = SampledMeter(gpu, gpu.clock)
    gpu.run(20, 300.0)

    def gone() -> float:
        from zeus.errors import Unsupported

        raise Unsupported("no counter any more")

    gpu.energy = gone  # type: ignore[method-assign]
    assert meter._ticker is not None
    meter._ticker.stop()
    gpu.run(60, 300.0)  # nobody looks
    begin = stamp(meter, gpu.clock.now())
    gpu.run(2, 300.0)  # which the driver's buffer holds to its beginning
    measured = meter.read(begin, stamp(meter, gpu.clock.now()))
    assert measured.joules == pytest.approx(600, rel=0.02)
    assert measured.source.value == "integrated"


def test_a_buffer_that_was_nearly_empty_at_first_is_not_looked_at_in_a_hurry_for_ever() -> None:
    gpu = sensed(sample_count=119)
    meter = SampledMeter(gpu, gpu.clock)  # at time 0 the buffer holds one sample
    assert meter._calm == SampledMeter.POLL_SECONDS
    gpu.clock.sleep(10)
    assert meter._calm > 1.0
    begin = stamp(meter, gpu.clock.now())
    gpu.run(5, 300.0)
    assert meter.read(begin, stamp(meter, gpu.clock.now())).joules == pytest.approx(1500, rel=0.02)
    meter.close()


# ------------------------------------------------------------------------------------------------ clocks


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_wall_clock_step_while_nobody_looked_moves_no_sample(step: float) -> None:
    """The step is older than the whole buffer: there is no jump among the stamps to see it by."""
    stamps = StampMapper()

    def buffer(now: float, offset: float) -> list[PowerSample]:
        return [PowerSample(now - 0.05 - 0.02 * age + offset, 100.0) for age in reversed(range(119))]

    offset = 1.7e9
    stamps.to_monotonic(buffer(100.0, offset), 100.0, 100.0 + offset)
    offset += step
    seen = stamps.to_monotonic(buffer(110.0, offset), 110.0, 110.0 + offset)
    assert seen[-1][0] == pytest.approx(109.95, abs=0.001)
    assert seen[0][0] == pytest.approx(107.59, abs=0.001)


def test_a_background_action_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    tries = threading.Semaphore(0)

    def fail() -> None:
        tries.release()
        raise RuntimeError("boom")

    with caplog.at_level(logging.WARNING, "zeus"):
        ticker = RealClock().every(0.001, fail)
        assert all(tries.acquire(timeout=PATIENCE_SECONDS) for _ in range(3))
        ticker.stop()
    assert "boom" in caplog.text


# ------------------------------------------------------------------------------------------------ other sensors


@pytest.mark.parametrize("period", [0.001, 0.005, 0.1, 0.2])
@pytest.mark.parametrize("smoothing", [0.0, SAMPLE_BUFFER.smoothing, 0.05])
def test_the_bound_holds_for_a_buffer_unlike_the_one_that_was_studied(period: float, smoothing: float) -> None:
    gpu = sensed(sample_period=period, smoothing=smoothing, noise=0.005)
    monitor = ZeusMonitor(gpus={0: gpu})
    truth = gpu.machine.gpus[0]
    gpu.clock.sleep(3)
    within = 0
    for i in range(20):
        gpu.clock.sleep(0.31 + 0.0137 * i % 0.2)
        before = truth.energy()
        with monitor.window("w") as window:
            gpu.run(max(0.05, 2 * period) + 0.01 * i, 300.0 + 18 * i)  # shorter ones may leave no trace at all
        exact = truth.energy() - before  # before the reader waits, which moves the clock
        within += abs(window.joules - exact) <= window.error
    assert within >= 19
    monitor.close()


@pytest.mark.parametrize("length", [0.05, 0.3, 1.0, 4.0])
def test_the_bound_holds_for_a_card_that_tells_only_a_moving_average(fake_nvml: FakeNvml, length: float) -> None:
    from support.nvml.fake_time import FakeTime

    card = fake_nvml.cards[0]
    for group in ("samples", "instant"):
        card.fail(group, "not_supported")
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    within = 0
    for i in range(20):
        card.power_watts = 124
        clock.sleep(3 + 0.013 * i)
        card.power_watts = 600
        begin = clock.now()
        with monitor.window("w") as window:
            clock.sleep(length)
        card.power_watts = 124
        within += abs(window.joules - card.joules(begin, begin + length)) <= window.error
    assert within >= 19
    monitor.close()


# ------------------------------------------------------------------------------------------------ ranks


def test_a_window_is_not_counted_anew_when_the_rank_that_counted_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"),
        "XDG_RUNTIME_DIR": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_NTASKS": "2",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLURM_LOCALID", "0")
    first = ZeusMonitor()
    monkeypatch.setenv("SLURM_LOCALID", "1")
    second = ZeusMonitor()
    with first.window("w") as w0, second.window("w") as w1:
        first.gpus[0].clock.sleep(10)  # type: ignore[attr-defined]
    assert w0.joules > 0
    first.close()
    assert w1.joules == 0.0
    second.close()


def test_ranks_that_cannot_write_anywhere_measure_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    for name in ("XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    monkeypatch.setenv("ZEUS_GPU", "virtual:v100?clock=virtual")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monitor = ZeusMonitor()
    with monitor.window("w") as window:
        monitor.gpus[0].clock.sleep(10)  # type: ignore[attr-defined]
    assert window.joules > 0
    assert "ranks cannot tell each other" in caplog.text


# ------------------------------------------------------------------------------------------------ the framework


class Cuda:
    """As much of torch.cuda as a monitor touches: four cards, of which this process uses some."""

    def __init__(self, used: set[int]) -> None:
        self.used = used
        self.waited: list[int] = []
        self.broken = False

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 4

    def current_device(self) -> int:
        return 0

    def memory_reserved(self, index: int) -> int:
        return 2**20 if index in self.used else 0

    def synchronize(self, index: int) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")
        self.waited.append(index)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    torch = types.ModuleType("torch")
    torch.cuda = Cuda(used={2})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch.cuda  # type: ignore[attr-defined, no-any-return]


def test_only_cards_that_this_process_uses_are_waited_for(cuda: Cuda) -> None:
    """Waiting for a card that another rank uses would open it here too, and take hundreds of megabytes there."""
    monitor = ZeusMonitor(gpus=dict(enumerate(VirtualMachine.in_memory("v100", count=4).gpus)))
    monitor.begin_window("w")
    assert cuda.waited == [0, 2]


def test_what_a_block_raises_is_not_hidden_by_what_measuring_it_raises(cuda: Cuda) -> None:
    monitor = ZeusMonitor(gpus=dict(enumerate(VirtualMachine.in_memory("v100").gpus)))
    with pytest.raises(KeyError, match="the cause"), monitor.window("w"):
        cuda.broken = True
        raise KeyError("the cause")
    cuda.broken = False
    with pytest.raises(KeyError, match="the cause"), monitor.window("w"):
        monitor.reset_windows()
        raise KeyError("the cause")
    with monitor.window("w"):
        pass


# ------------------------------------------------------------------------------------------------ finding cards


def test_a_card_that_is_lost_spoils_no_training_on_the_others(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for group in ("counter", "samples", "power", "instant", "limits"):
        fake_nvml.cards[1].fail(group, "lost")
    monkeypatch.setenv("ZEUS_GPU", "nvml")
    monitor = ZeusMonitor()
    assert [gpu.spec.uuid for gpu in monitor.gpus.values()] == [fake_nvml.cards[0].uuid]
    assert "is skipped" in caplog.text
    monitor.close()
