"""Tickers of the machine's clock and of a virtual one."""

from __future__ import annotations

import threading

from support.waiting import PATIENCE_SECONDS
from zeus.device.clock import REAL, VirtualClock


def test_a_timer_at_another_pace_runs_at_that_pace_only() -> None:
    clock, moments = VirtualClock(), list[float]()
    ticker = clock.every(2.0, lambda: moments.append(clock.now()))
    clock.sleep(5)
    ticker.pace(0.5)
    clock.sleep(2)
    ticker.stop()
    ticker.pace(0.1)
    clock.sleep(9)
    assert moments == [2, 4, 5.5, 6, 6.5, 7]


def test_a_timer_moved_to_the_moment_at_which_it_was_due_runs_once() -> None:
    clock, moments = VirtualClock(), list[float]()
    ticker = clock.every(2.0, lambda: moments.append(clock.now()))
    clock.sleep(1)
    ticker.pace(1.0)
    clock.sleep(2)
    assert moments == [2, 3]


def test_a_thread_that_waits_takes_a_new_pace_at_once() -> None:
    done = threading.Event()
    ticker = REAL.every(3600.0, done.set)
    ticker.pace(0.01)
    assert done.wait(PATIENCE_SECONDS)
    ticker.stop()
