"""Drivers that hang, talk nonsense, lose their count or fail: the training goes on and no number is untrue."""

from __future__ import annotations

import logging
import math
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from support.launch_place import Place
from support.nvml.fake import FakeCard, FakeNvml
from support.nvml.fake_time import FakeTime
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.device.find import find
from zeus.device.nvml import nvml_gpus
from zeus.errors import DeviceError, DeviceSilent
from zeus.monitor import Measurement, PowerMonitor, ZeusMonitor

MARKER_WATTS = 0xFFFFFFFF / 1e3  # what some drivers say for "not known"
SHORT = limits(driver_answer=0.5, driver_opening=5.0, grace=1.0)


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a driver that hangs."""
    monkeypatch.setenv("ZEUS_TIME_LIMITS", SHORT)


# --- a call that does not come back


def test_a_call_that_hangs_is_given_up_on_and_asked_again_when_it_is_back(fake_nvml: FakeNvml) -> None:
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    card.fail("temperature", "hang")
    with pytest.raises(DeviceSilent, match="has not answered"):
        gpu.temperature()
    asked = card.reads("temperature")
    for _ in range(100):
        with pytest.raises(DeviceSilent):  # at once: one thread waits for the driver, and no second one
            gpu.limit()
    assert card.reads("temperature") == asked and card.reads("limits") == 0
    card.heal()
    eventually(lambda: _answers(gpu.temperature))
    assert gpu.limit() == 700


def test_a_card_that_hangs_while_it_is_probed_is_left_out_and_hides_no_other(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ZEUS_GPU", "nvml")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake_nvml.cards[0].fail("counter", "hang")
    with caplog.at_level(logging.WARNING, "zeus"):
        assert [gpu.spec.uuid for gpu in find().values()] == [fake_nvml.cards[1].uuid]
    assert "has not answered" in caplog.text
    fake_nvml.cards[0].heal()


def test_a_silent_card_is_unavailable_and_costs_one_wait_not_one_a_window(
    fake_nvml: FakeNvml, caplog: pytest.LogCaptureFixture
) -> None:
    monitor = ZeusMonitor(gpus=dict(enumerate(nvml_gpus())))
    monitor.begin_window("w")
    fake_nvml.cards[0].fail("all", "hang")
    measured = monitor.end_window("w")
    assert measured.sources[0] == "unavailable" and math.isnan(measured.gpu_energy[0])
    assert measured.gpu_energy[1] > 0
    for _ in range(10):
        with monitor.window("w") as window:
            pass
        assert window.measurement is not None
        assert window.measurement.sources[0] == "unavailable"
    assert caplog.text.count("has not answered") == 1
    fake_nvml.cards[0].heal()
    eventually(lambda: _short_window(monitor).sources[0] == "counter+samples")
    monitor.close()


LOOP = """
import sys
from zeus.monitor import PowerMonitor, ZeusMonitor
monitor = ZeusMonitor(log_file=sys.argv[1])
power = PowerMonitor(update_period=0.01)
with monitor.window("before"):
    pass
print("ready", flush=True)
sys.stdin.readline()
for _ in range(5):
    with monitor.window("during"):
        pass
if sys.argv[2] == "read":
    monitor.begin_window("w")
    print(monitor.end_window("w").sources, flush=True)
if sys.argv[2] == "close":
    monitor.close()
    power.stop()
"""


@pytest.mark.parametrize("how", ["read", "close", "exit"])
def test_a_process_ends_though_its_driver_does_not_answer(fake_nvml: FakeNvml, tmp_path: Path, how: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tmp_path / "w.csv"), how],
        env=fake_nvml.env(ZEUS_GPU="nvml"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for card in fake_nvml.cards:
            card.fail("all", "hang")
        said, _ = process.communicate("\n", timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    if how == "read":
        assert said.strip() == "{0: 'unavailable', 1: 'unavailable'}"
    rows = (tmp_path / "w.csv").read_text().splitlines()
    assert len(rows) == 7 + (how == "read")
    assert "nan" in rows[-1]


SCRIPT = """
import pathlib, sys, time
pathlib.Path("pid").write_text(str(__import__("os").getpid()))
for epoch in range(1, 4):
    while not pathlib.Path(f"go{epoch}").exists():
        time.sleep(0.01)
    print(f"acc={epoch * 3 / 10}")
    print(f"epoch {epoch} done", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def watched(fake_nvml: FakeNvml, tmp_path: Path) -> Place:
    """`zeus run` of a script that reaches its target in its third epoch and would go on for an hour."""
    place = Place(tmp_path, gpu="nvml")
    there = fake_nvml.env()
    place.env |= {name: there[name] for name in ("FAKE_NVML_STATE", "LD_LIBRARY_PATH")}
    place.env["ZEUS_TIME_LIMITS"] = SHORT
    (tmp_path / "train.py").write_text(SCRIPT)
    place.job(batch_sizes=[16], mode="observe", power_limits=[])
    return place


def test_a_run_ends_at_its_target_though_the_driver_hangs(watched: Place, fake_nvml: FakeNvml) -> None:
    process = watched.start("--json")
    try:
        watched.pid()
        (watched.folder / "go1").touch()
        for card in fake_nvml.cards:
            card.fail("all", "hang")
        (watched.folder / "go2").touch()
        (watched.folder / "go3").touch()
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        for card in fake_nvml.cards:
            card.heal()
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert '"joules": null' in out


def test_a_run_is_interrupted_though_the_driver_hangs(watched: Place, fake_nvml: FakeNvml) -> None:
    process = watched.start()
    try:
        watched.pid()
        for card in fake_nvml.cards:
            card.fail("all", "hang")
        (watched.folder / "go1").touch()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        for card in fake_nvml.cards:
            card.heal()
        process.kill()
        process.wait()
    assert process.returncode == 130, err


# --- a driver that fails each time


def test_a_driver_that_fails_on_each_call_costs_one_wait_not_one_a_window(fake_nvml: FakeNvml) -> None:
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    clock.sleep(5)
    fake_nvml.cards[0].fail("all", "unknown")
    begin = clock.now()
    for _ in range(20):
        assert _short_window(monitor).sources == {0: "unavailable"}
    assert clock.now() - begin < 5
    fake_nvml.cards[0].heal()
    clock.sleep(5)
    assert _short_window(monitor).sources == {0: "counter+samples"}
    monitor.close()


@pytest.mark.parametrize("group", ["counter", "samples"])
def test_a_sensor_that_fails_after_a_gap_costs_one_wait_not_one_a_window(fake_nvml: FakeNvml, group: str) -> None:
    clock = FakeTime(fake_nvml)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    clock.sleep(5)
    fake_nvml.advance(60)  # the process was stopped: no timer ran
    fake_nvml.cards[0].fail(group, "unknown")
    begin = clock.now()
    for _ in range(20):
        _short_window(monitor)
    assert clock.now() - begin < 20
    monitor.close()


# --- numbers that cannot be


@pytest.mark.parametrize("watts", [MARKER_WATTS, 0.0, -5.0, 50_000.0])
@pytest.mark.parametrize("sensor", ["samples", "instant", "average"])
@pytest.mark.parametrize("seconds", [0.03, 3.0])
def test_a_power_that_no_card_draws_is_no_reading(
    fake_nvml: FakeNvml, watts: float, sensor: str, seconds: float
) -> None:
    clock, card = FakeTime(fake_nvml), fake_nvml.cards[0]
    for group in ("samples", "instant")[: ("samples", "instant", "average").index(sensor)]:
        card.fail(group, "not_supported")
    card.power_watts = 300
    clock.sleep(5)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    clock.sleep(5)
    monitor.begin_window("w")
    clock.sleep(9)
    card.garbage("power", watts, seconds)
    clock.sleep(11)
    measured = monitor.end_window("w")
    assert _is_true(measured, 6000)
    assert measured.errors[0] < 300
    assert measured.sources[0].startswith("counter")  # which was right all the time, and is not given up
    monitor.close()


def test_no_nonsense_is_told_as_power(fake_nvml: FakeNvml) -> None:
    gpu, card = nvml_gpus()[0], fake_nvml.cards[0]
    assert gpu.power() == 124
    for watts in (MARKER_WATTS, -5.0, 0.0, 50_000.0):
        card.garbage("power", watts, 3600)
        with pytest.raises(DeviceError, match=r"no running card draws|can draw"):
            gpu.power()
    card.garbage("power", 0.0, 0)
    assert gpu.power() == 124


# --- a counter that loses its count


def _restart(card: FakeCard) -> None:
    card.restart_counter()


def _step_back(card: FakeCard) -> None:
    card.step_counter(-1e9)


def _leap(card: FakeCard) -> None:
    card.step_counter(1e8)


def _blink(card: FakeCard) -> None:
    card.garbage("counter", 2**64 / 1e3, 1.5)


def _zero_for_a_moment(card: FakeCard) -> None:
    card.garbage("counter", 0.0, 1.5)


FAULTS = [_restart, _step_back, _leap, _blink, _zero_for_a_moment]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("missing", [(), ("samples",), ("samples", "power", "instant")])
def test_a_counter_that_loses_its_count_tells_nothing_untrue(
    fake_nvml: FakeNvml, fault: object, missing: tuple[str, ...]
) -> None:
    assert callable(fault)
    clock, card, monitor = _watched(fake_nvml, 300, missing)
    monitor.begin_window("long")
    for _ in range(20):
        monitor.begin_window("short")
        clock.sleep(1.5)
        assert _is_true(monitor.end_window("short"), 450)
    fault(card)
    for _ in range(40):
        monitor.begin_window("short")
        clock.sleep(1.5)
        assert _is_true(monitor.end_window("short"), 450)
    measured = monitor.end_window("long")
    assert _is_true(measured, 300 * measured.time)
    clock.sleep(60)
    monitor.begin_window("later")
    clock.sleep(20)
    later = monitor.end_window("later")
    assert later.joules == pytest.approx(6000, rel=0.02)
    assert later.sources[0].startswith("counter")  # it is right again, and is trusted again
    monitor.close()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("missing", [(), ("samples",), ("samples", "power", "instant")])
def test_a_count_lost_while_nobody_looked_is_not_made_up(
    fake_nvml: FakeNvml, fault: object, missing: tuple[str, ...]
) -> None:
    """Idle before and after, busy in between, the counter of no use: 4,500 J told for 20,450 once."""
    assert callable(fault)
    clock, card, monitor = _watched(fake_nvml, 75, missing)
    begin = clock.now()
    monitor.begin_window("w")
    clock.sleep(5)
    card.power_watts = 400
    fake_nvml.advance(45)  # nobody looks: the process is stopped, or the driver hangs
    fault(card)
    card.power_watts = 75
    fake_nvml.advance(5)
    clock.sleep(5)
    measured = monitor.end_window("w")
    assert _is_true(measured, card.joules(begin, clock.now()))
    assert math.isnan(measured.joules) or measured.error < measured.joules
    monitor.close()


def test_a_gap_that_no_counter_fills_is_bounded_by_what_the_card_can_draw(fake_nvml: FakeNvml) -> None:
    clock, card, monitor = _watched(fake_nvml, 75, ("counter",))
    begin = clock.now()
    monitor.begin_window("around")
    monitor.begin_window("long")
    clock.sleep(5)
    card.power_watts = 650
    fake_nvml.advance(10)
    card.power_watts = 75
    clock.sleep(5)
    assert math.isnan(monitor.end_window("around").joules)  # it may have been anything
    card.power_watts = 400
    clock.sleep(600)
    measured = monitor.end_window("long")
    assert measured.joules > 0
    assert _is_true(measured, card.joules(begin, clock.now()))
    monitor.close()


# --- timelines


def test_a_timeline_tells_no_energy_of_a_time_in_which_nobody_answered(fake_nvml: FakeNvml) -> None:
    monitor = PowerMonitor(gpus={0: nvml_gpus()[0]}, update_period=0.02)
    begin = monitor._recorder.clock.wall()
    eventually(lambda: len(monitor.get_power_timeline()[0]) > 3)
    fake_nvml.cards[0].fail("all", "unknown")
    before = len(monitor.get_power_timeline()[0])
    threading.Event().wait(monitor._recorder.reach * 2.5)
    fake_nvml.cards[0].heal()
    eventually(lambda: len(monitor.get_power_timeline()[0]) > before + 3)
    assert monitor.get_energy(begin, monitor._recorder.clock.wall()) is None
    monitor.stop()


def _watched(fake_nvml: FakeNvml, watts: float, missing: tuple[str, ...]) -> tuple[FakeTime, FakeCard, ZeusMonitor]:
    """A card that has drawn this much for a while and cannot tell some things, and a monitor that knows it."""
    clock, card = FakeTime(fake_nvml), fake_nvml.cards[0]
    for group in missing:
        card.fail(group, "not_supported")
    card.power_watts = watts
    clock.sleep(5)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    clock.sleep(5)
    return clock, card, monitor


def _answers(reading: object) -> bool:
    assert callable(reading)
    try:
        reading()
    except DeviceError:
        return False
    return True


def _short_window(monitor: ZeusMonitor) -> Measurement:
    monitor.begin_window("short", restart=True)
    measured = monitor.end_window("short")
    _ = measured.joules
    return measured


def _is_true(measured: Measurement, joules: float) -> bool:
    return math.isnan(measured.joules) or abs(measured.joules - joules) <= max(measured.error, 1)
