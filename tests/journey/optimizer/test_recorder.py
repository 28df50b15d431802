"""The segments of a training: what is measured, and that measuring never holds it up."""

import time

import pytest

from support.nvml.fake import FakeNvml
from support.waiting import limits
from zeus.device.virtual import VirtualMachine
from zeus.distributed.group import SingleRank
from zeus.job import Kind
from zeus.monitor import ZeusMonitor
from zeus.optimizer.recorder import Recorder
from zeus.trial.engine import Measured


class Heard:
    """A listener that keeps the limits of the segments that it hears of, and their units."""

    def __init__(self) -> None:
        self.limits: list[float | None] = []
        self.counts: list[int] = []

    def hear(self, segment: Measured) -> None:
        self.limits.append(segment.limit)
        self.counts.append(segment.count)


def test_no_cut_waits_for_a_driver_that_does_not_tell_the_limit(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(driver_answer=20.0))
    monitor = ZeusMonitor()
    heard = Heard()
    recorder = Recorder.join(monitor, SingleRank(), heard.hear)
    fake_nvml.cards[0].fail("limits", "hang")
    began = time.monotonic()
    for _ in range(10):
        recorder.cut(Kind.STEP, 1)
    recorder.deliver(wait=True)
    assert time.monotonic() - began < 10
    assert heard.limits == [None] * 10
    fake_nvml.cards[0].heal()
    monitor.close()


def test_a_segment_has_the_limit_at_which_it_ran(fake_nvml: FakeNvml) -> None:
    monitor, card = ZeusMonitor(), fake_nvml.cards[0]
    heard = Heard()
    recorder = Recorder.join(monitor, SingleRank(), heard.hear)
    recorder.cut(Kind.STEP, 1)
    recorder.deliver(wait=True)
    card.limit_watts = 500  # somebody else sets it
    recorder.cut(Kind.STEP, 1)
    recorder.deliver(wait=True)
    recorder.cut(Kind.STEP, 1)
    recorder.deliver(wait=True)
    assert heard.limits == [700, None, 500]
    monitor.close()


def test_listeners_of_the_same_gpus_share_one_window_and_a_step_counts_once(fake_nvml: FakeNvml) -> None:
    first, second = Heard(), Heard()
    one, other = ZeusMonitor(), ZeusMonitor()
    recorder = Recorder.join(one, SingleRank(), first.hear)
    recorder.step(first.hear)
    assert Recorder.join(other, SingleRank(), second.hear) is recorder
    for _ in range(3):
        recorder.step(first.hear)
        recorder.step(second.hear)
    recorder.cut_steps()
    recorder.leave(first.hear)
    recorder.step(second.hear)
    recorder.cut_steps()
    recorder.leave(second.hear)
    recorder.deliver(wait=True)
    assert (first.counts, second.counts) == ([1, 3], [3, 1])
    assert Recorder.current(one, SingleRank()) is None
    one.close(), other.close()


def test_a_limit_that_is_set_here_parts_two_segments() -> None:
    card = VirtualMachine.in_memory("v100").gpus[0]
    monitor, heard = ZeusMonitor(gpus={0: card}), Heard()
    recorder = Recorder.join(monitor, SingleRank(), heard.hear)
    recorder.step(heard.hear)
    with recorder.setting_limit():
        card.set_limit(150)
    recorder.step(heard.hear)
    recorder.cut_steps()
    recorder.leave(heard.hear)
    recorder.deliver(wait=True)
    assert list(zip(heard.counts, heard.limits, strict=True)) == [(1, 250), (0, None), (1, 150)]
