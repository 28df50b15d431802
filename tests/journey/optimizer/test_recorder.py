"""The pieces of a training: what is measured, and that measuring never holds it up."""

import time

import pytest

from support.nvml.fake import FakeNvml
from support.waiting import limits
from zeus.distributed.crew import Alone
from zeus.job import Kind
from zeus.monitor import ZeusMonitor
from zeus.optimizer.recorder import Recorder


def test_no_cut_waits_for_a_driver_that_does_not_tell_the_limit(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(driver_answer=20.0))
    monitor = ZeusMonitor()
    recorder = Recorder(monitor, Alone())
    recorder.begin()
    fake_nvml.cards[0].fail("limits", "hang")
    began = time.monotonic()
    for _ in range(10):
        recorder.cut(Kind.STEP, 1)
    pieces = recorder.all()
    assert time.monotonic() - began < 10
    assert [piece.limit for piece in pieces] == [None] * 10
    fake_nvml.cards[0].heal()
    monitor.close()


def test_a_piece_has_the_limit_at_which_it_ran(fake_nvml: FakeNvml) -> None:
    monitor, card = ZeusMonitor(), fake_nvml.cards[0]
    recorder = Recorder(monitor, Alone())
    recorder.begin()
    recorder.cut(Kind.STEP, 1)
    before = recorder.all()
    card.limit_watts = 500  # somebody else sets it
    recorder.cut(Kind.STEP, 1)
    changed = recorder.all()
    recorder.cut(Kind.STEP, 1)
    assert [piece.limit for piece in [*before, *changed, *recorder.all()]] == [700, None, 500]
    monitor.close()
