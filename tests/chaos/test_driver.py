"""Drivers that hang, lie, forget, fall silent and come back, while windows are measured.

The promises: the truth is within the told bound, or the energy is unknown; no call of ours waits longer than it may;
the process ends.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from support.nvml.fake import FakeCard, FakeNvml
from support.nvml.fake_time import FakeTime
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.deadline import _threads
from zeus.device.nvml import nvml_gpus
from zeus.monitor import Measurement, ZeusMonitor

if TYPE_CHECKING:
    from chaos.conftest import Chaos

LACKS = ("", "counter", "samples", "samples instant", "samples counter", "samples power instant")
BEYOND = 0.01  # of the truth, by which a bound may be missed: it is told for 95 windows in 100
DRIVERS = 10  # of a round
SHORT = limits(driver_answer=0.5, driver_opening=5.0)
WAIT_SECONDS = 60.0  # many times what a reader may wait, for a machine that is busy


def _nonsense(dice: random.Random, card: FakeCard) -> None:
    watts = dice.choice([0xFFFFFFFF / 1e3, 0x7FFFFFFF / 1e3, 0.0, -40.0, dice.uniform(2000, 1e6)])
    card.garbage("power", watts, dice.choice([0.01, 0.1, 1.0, 5.0]))


def _wrong_count(dice: random.Random, card: FakeCard) -> None:
    joules = dice.choice([0.0, 2**64 / 1e3, dice.uniform(0, 1e6), dice.uniform(1e12, 1e15)])
    card.garbage("counter", joules, dice.choice([0.01, 1.0, 4.0]))


def _restart(dice: random.Random, card: FakeCard) -> None:
    card.restart_counter()


def _step(dice: random.Random, card: FakeCard) -> None:
    card.step_counter(dice.choice([-1, 1]) * 10 ** dice.uniform(6, 9))  # within what it uses, nobody could tell


def _fail(dice: random.Random, card: FakeCard) -> None:
    how = dice.choice(["unknown", "timeout", "empty"])
    card.fail("samples" if how == "empty" else dice.choice(["counter", "samples", "instant", "power"]), how)


FAULTS: tuple[Callable[[random.Random, FakeCard], None], ...] = (_nonsense, _wrong_count, _restart, _step, _fail)


def test_no_driver_makes_an_energy_untrue(fake_nvml: FakeNvml, chaos: Chaos) -> None:
    """In the driver's own time: a process that is stopped, nonsense, a count that is lost, sensors that fail."""
    clock = FakeTime(fake_nvml)
    while chaos.going():
        for _ in range(DRIVERS):
            _measure(chaos, fake_nvml, clock)


def _measure(chaos: Chaos, fake_nvml: FakeNvml, clock: FakeTime) -> None:
    """Windows of one monitor, on a card that lacks something from the start."""
    dice, card = chaos.dice, fake_nvml.cards[0]
    card.heal()
    missing = dice.choice(LACKS).split()
    for group in missing:
        card.fail(group, "not_supported")
    card.power_watts = dice.uniform(60, 650)
    clock.sleep(10)
    monitor = ZeusMonitor(gpus={0: nvml_gpus()[0]}, clock=clock)
    clock.sleep(3)
    monitor.begin_window("whole")
    began, story = clock.now(), [str(missing)]
    for _ in range(dice.randrange(3, 12)):
        monitor.begin_window("part", restart=True)
        begin = clock.now()
        clock.sleep(dice.uniform(0.3, 5))
        if dice.random() < 0.5:
            fault = dice.choice(FAULTS)
            fault(dice, card)
            story.append(f"{fault.__name__} at {clock.now():.2f}")
            chaos.count("driver faults")
        if dice.random() < 0.2:
            card.power_watts = dice.uniform(60, 650)
            story.append(f"{card.power_watts:.0f} W at {clock.now():.2f}")
        if dice.random() < 0.2:
            fake_nvml.advance(dice.choice([0.3, 3.0, 30.0]))  # the whole process is stopped: no timer runs
            story.append(f"stopped until {clock.now():.2f}")
        if dice.random() < 0.3:
            card.heal()
            for group in missing:
                card.fail(group, "not_supported")
        clock.sleep(dice.uniform(0.3, 5))
        _check(chaos, monitor.end_window("part"), card, begin, clock, story)
    _check(chaos, monitor.end_window("whole"), card, began, clock, story)
    monitor.close()


def _check(
    chaos: Chaos, measured: Measurement, card: FakeCard, begin: float, clock: FakeTime, story: list[str]
) -> None:
    end = clock.now()
    truth, joules = card.joules(begin, end), measured.joules
    chaos.count("windows")
    chaos.count("windows of unknown energy", math.isnan(joules))
    chaos.held(clock.now() - end < 5, f"a reader waited from {end:.2f} to {clock.now():.2f} {story}")
    chaos.held(
        math.isnan(joules) or abs(joules - truth) <= measured.error + BEYOND * truth,
        f"from {begin:.2f} to {end:.2f}: {joules:.1f} J ± {measured.error:.1f} told, {truth:.1f} J used {story}",
    )


def test_no_driver_holds_anybody_up(fake_nvml: FakeNvml, chaos: Chaos, monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time: calls that hang, are slow, fail or find the card gone, while windows are opened and read."""
    monkeypatch.setenv("ZEUS_TIME_LIMITS", SHORT)
    dice, cards = chaos.dice, fake_nvml.cards
    while chaos.going():
        for card in cards:
            card.heal()
            card.power_watts = dice.uniform(60, 650)
        eventually(lambda: not any(_threads.stuck(card.uuid) for card in cards))  # what hung has returned
        began = time.monotonic()
        monitor = ZeusMonitor(gpus=dict(enumerate(nvml_gpus())), log_file=fake_nvml.path.with_name("windows.csv"))
        for _ in range(dice.randrange(2, 6)):
            monitor.begin_window("part")
            begin = time.monotonic()
            for card in cards:
                _hinder(chaos, dice, card)
            time.sleep(dice.uniform(0, 0.5))
            if dice.random() < 0.5:
                dice.choice(cards).heal()
            measured, end = monitor.end_window("part"), time.monotonic()
            told, errors = measured.gpu_energy, measured.errors
            chaos.count("windows", len(told))
            chaos.count("windows of unknown energy", sum(map(math.isnan, told.values())))
            chaos.held(time.monotonic() - end < WAIT_SECONDS, f"reading a window took {time.monotonic() - end:.0f} s")
            for index, joules in told.items():
                truth = cards[index].joules(begin, end)
                slack = 700 * 0.005  # between our look at the clock and the monitor's
                chaos.held(
                    math.isnan(joules) or abs(joules - truth) <= errors[index] + BEYOND * truth + slack,
                    f"{joules:.1f} J ± {errors[index]:.1f} told, {truth:.1f} J used in {end - begin:.2f} s",
                )
        closing = time.monotonic()
        monitor.close()
        chaos.held(time.monotonic() - closing < WAIT_SECONDS, f"closing took {time.monotonic() - closing:.0f} s")
        chaos.held(time.monotonic() - began < 10 * WAIT_SECONDS, "all of it took minutes")
    for card in cards:
        card.heal()


def _hinder(chaos: Chaos, dice: random.Random, card: FakeCard) -> None:
    match dice.choice(["hang", "slow", "timeout", "lost", "garbage", "restart", "nothing", "nothing"]):
        case "hang":
            card.fail(dice.choice(["all", "samples", "counter", "open"]), "hang")
        case "slow":
            card.slow(dice.choice(["all", "samples", "counter"]), 10 ** dice.uniform(-3, 0))
        case "garbage":
            _nonsense(dice, card)
        case "restart":
            card.restart_counter()
        case "nothing":
            return
        case how:
            card.fail(dice.choice(["all", "samples", "counter"]), how)
    chaos.count("driver faults")


TRAINING = """
import random, sys, time
from zeus.monitor import PowerMonitor, ZeusMonitor
dice = random.Random(sys.argv[1])
monitor, power = ZeusMonitor(log_file=sys.argv[2]), PowerMonitor(update_period=0.01)
print("ready", flush=True)
sys.stdin.readline()
for step in range(50):
    with monitor.window("step") as window:
        time.sleep(0.002)
    if dice.random() < 0.05:
        print(window.joules, flush=True)
if dice.random() < 0.5:
    monitor.close()
"""


def test_a_process_ends_whatever_its_driver_does(fake_nvml: FakeNvml, chaos: Chaos) -> None:
    dice, cards = chaos.dice, fake_nvml.cards
    while chaos.going():
        for card in cards:
            card.heal()
        log = fake_nvml.path.with_name(f"{chaos.did['rounds']}.csv")
        process = subprocess.Popen(
            [sys.executable, "-c", TRAINING, str(dice.random()), str(log)],
            env=fake_nvml.env(ZEUS_GPU="nvml", ZEUS_TIME_LIMITS=SHORT),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            for card in cards:
                _hinder(chaos, dice, card)
            _, errors = process.communicate("\n", timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            errors = "it does not end"
        finally:
            process.kill()
            process.wait()
        chaos.count("processes")
        chaos.held(process.returncode == 0, f"a training ended with {process.returncode}: {errors}")
        chaos.held(len(log.read_text().splitlines()) == 51, f"lines of {log} are missing")
