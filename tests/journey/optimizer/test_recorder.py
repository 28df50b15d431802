"""The segments of a training: what is measured, and that measuring never holds it up."""

import time

import pytest

from support.cards import RESNET, VirtualCards
from support.nvml.fake import FakeNvml
from support.waiting import PATIENCE_SECONDS, limits
from zeus.cost import GPU_ONLY
from zeus.device.virtual import VirtualMachine, step
from zeus.distributed.group import RankGroup
from zeus.job import JobSpec, Kind
from zeus.monitor import ZeusMonitor
from zeus.optimizer import shared_window
from zeus.optimizer.batch_size import BatchSizeOptimizer
from zeus.optimizer.power_limit import GlobalPowerLimitOptimizer
from zeus.optimizer.recorder import Recorder
from zeus.optimizer.shared_window import setting_limit
from zeus.store import MemoryStore
from zeus.trial.engine import Measured


class Heard:
    """A listener that keeps the limits of the segments that it hears of, their units and their energy."""

    def __init__(self, monitor: ZeusMonitor) -> None:
        self.limits: list[float | None] = []
        self.counts: list[int] = []
        self.joules: list[float] = []
        self.recorder = Recorder(monitor, RankGroup(), self.hear)
        self.recorder.begin()

    def hear(self, segment: Measured) -> None:
        self.limits.append(segment.limit)
        self.counts.append(segment.count)
        self.joules.append(segment.use.joules)


def test_no_cut_waits_for_a_driver_that_does_not_tell_the_limit(
    fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(driver_answer=20.0))
    monitor = ZeusMonitor()
    heard = Heard(monitor)
    fake_nvml.cards[0].fail("limits", "hang")
    began = time.monotonic()
    for _ in range(10):
        heard.recorder.cut(Kind.STEP, 1)
    heard.recorder.deliver(wait=True)
    assert time.monotonic() - began < 10
    assert heard.limits == [None] * 10
    fake_nvml.cards[0].heal()
    monitor.close()


def test_a_segment_has_the_limit_at_which_it_ran(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_window, "HANDOVER_SECONDS", PATIENCE_SECONDS)
    monitor, card = ZeusMonitor(), fake_nvml.cards[0]
    heard = Heard(monitor)
    heard.recorder.cut(Kind.STEP, 1)
    heard.recorder.deliver(wait=True)
    card.limit_watts = 500  # somebody else sets it
    heard.recorder.cut(Kind.STEP, 1)
    heard.recorder.deliver(wait=True)
    heard.recorder.cut(Kind.STEP, 1)
    heard.recorder.deliver(wait=True)
    assert heard.limits == [700, None, 500]
    monitor.close()


def test_recorders_of_the_same_gpus_share_a_window_and_each_hears_of_its_own_units() -> None:
    machine = VirtualMachine.in_memory("v100")
    one, other = ZeusMonitor(gpus={0: machine.gpus[0]}), ZeusMonitor(gpus={0: machine.gpus[0]})
    first, second = Heard(one), Heard(other)
    assert len(one._open) + len(other._open) == 1
    for _ in range(4):
        machine.run([0], seconds=1, watts=100)
        first.recorder.step()
        first.recorder.cut_steps()  # does not divide what the second one measures
        second.recorder.step()
    second.recorder.cut_steps()
    machine.run([0], seconds=1, watts=100)
    second.recorder.cut(Kind.EVALUATION, 1)
    first.recorder.cut(Kind.EVALUATION, 1)
    first.recorder.end()
    machine.run([0], seconds=1, watts=100)
    second.recorder.cut(Kind.EVALUATION, 0)
    second.recorder.end()
    for heard in (first, second):
        heard.recorder.deliver(wait=True)
    assert (first.counts, first.joules) == ([1, 1, 1, 1, 1], [100.0] * 5)
    assert (second.counts, second.joules) == ([4, 1, 0], [400.0, 100.0, 100.0])
    assert not one._open and not other._open


def test_a_limit_that_is_set_here_parts_steps_but_not_a_whole_epoch() -> None:
    card = VirtualMachine.in_memory("v100").gpus[0]
    monitor = ZeusMonitor(gpus={0: card})
    steps, epochs = Heard(monitor), Heard(monitor)
    epochs.recorder.in_unit = True
    steps.recorder.step()
    with setting_limit(monitor, RankGroup(), GPU_ONLY):
        card.set_limit(150)
    steps.recorder.step()
    steps.recorder.cut_steps()
    epochs.recorder.cut(Kind.EPOCH, 1)
    for heard in (steps, epochs):
        heard.recorder.end()
        heard.recorder.deliver(wait=True)
    assert list(zip(steps.counts, steps.limits, strict=True)) == [(1, 250), (0, None), (1, 150)]
    assert list(zip(epochs.counts, epochs.limits, strict=True)) == [(1, None)]


@pytest.mark.parametrize("first", [0, 1])
def test_a_step_that_one_recorder_hears_of_later_still_ran_before_the_limit_was_set(first: int) -> None:
    machine = VirtualMachine.in_memory("v100")
    card = machine.gpus[0]
    monitor = ZeusMonitor(gpus={0: card})
    both = Heard(monitor), Heard(monitor)
    for number in range(6):
        machine.run([0], seconds=1, watts=100)
        both[first].recorder.step()
        if number == 2:
            with setting_limit(monitor, RankGroup(), GPU_ONLY):
                card.set_limit(150)
        both[1 - first].recorder.step()
    for heard in both:
        heard.recorder.cut_steps()
        heard.recorder.end()
        heard.recorder.deliver(wait=True)
        assert [(n, j) for n, j in zip(heard.counts, heard.joules, strict=True) if n] == [(3, 300.0), (3, 300.0)]


def test_a_recorder_that_begins_when_a_step_ends_knows_of_it_before_the_others_are_told() -> None:
    machine = VirtualMachine.in_memory("v100")
    card = machine.gpus[0]
    monitor = ZeusMonitor(gpus={0: card})
    trial, late = Heard(monitor), Heard(monitor)
    late.recorder.end()
    for number in range(1, 7):
        machine.run([0], seconds=1, watts=100)
        late.recorder.step()
        if number == 3:
            late.recorder.begin()
        if number in (3, 5):
            with setting_limit(monitor, RankGroup(), GPU_ONLY):
                card.set_limit(100 + 10 * number)
        trial.recorder.step()
    trial.recorder.cut_steps()
    trial.recorder.deliver(wait=True)
    assert [(n, j) for n, j in zip(trial.counts, trial.joules, strict=True) if j] == [
        (3, 300.0),
        (2, 200.0),
        (1, 100.0),
    ]


def test_a_recorder_that_begins_between_two_steps_counts_the_second_one_for_all() -> None:
    machine = VirtualMachine.in_memory("v100")
    card = machine.gpus[0]
    monitor = ZeusMonitor(gpus={0: card})
    trial = Heard(monitor)
    machine.run([0], seconds=1, watts=100)
    trial.recorder.step()
    late = Heard(monitor)
    machine.run([0], seconds=1, watts=100)
    late.recorder.step()
    with setting_limit(monitor, RankGroup(), GPU_ONLY):
        card.set_limit(150)
    trial.recorder.step()
    trial.recorder.cut_steps()
    trial.recorder.deliver(wait=True)
    assert [(n, j) for n, j in zip(trial.counts, trial.joules, strict=True) if j] == [(2, 200.0)]
    late.recorder.end()


def test_limits_that_are_profiled_again_divide_a_trial_between_its_steps(virtual_cards: VirtualCards) -> None:
    virtual_cards(RESNET)
    monitor = ZeusMonitor()
    power, card = GlobalPowerLimitOptimizer(monitor, recheck=0.3), monitor.gpus[0]
    trial = Heard(monitor)
    for work in (1, 5):  # the second epoch is another workload
        power.on_epoch_begin()
        trial.recorder.cut(Kind.EVALUATION, 0)
        for _ in range(200):
            for _ in range(work):
                step([card], 64)
            power.on_step_end()
            trial.recorder.step()
        trial.recorder.cut_steps()
        power.on_epoch_end()
    power.on_train_end()
    trial.recorder.deliver(wait=True)
    each: dict[float | None, list[float]] = {}
    for limit, count, joules in zip(trial.limits, trial.counts, trial.joules, strict=True):
        assert count or joules == pytest.approx(0.0, abs=1e-6)
        each.setdefault(limit, []).extend([joules / count] if count else [])
    assert sum(trial.counts) == 400
    assert len(each) > 5
    for steps in each.values():  # each ran wholly at one limit, once or five times as long
        assert all(one == pytest.approx(min(steps)) or one == pytest.approx(5 * min(steps)) for one in steps)


def test_epochs_are_whole_where_only_the_power_limit_optimizer_sees_their_steps(
    virtual_cards: VirtualCards,
) -> None:
    """The loop of the existing package: one optimizer gets every step, the other only the metric."""
    virtual_cards(RESNET)
    spec = JobSpec(
        job_id="mnist", job_id_prefix="mnist", batch_sizes=(64,), default_batch_size=64, max_epochs=4, target_metric=0.9
    )
    monitor = ZeusMonitor()
    power, size = GlobalPowerLimitOptimizer(monitor), BatchSizeOptimizer(monitor, job=spec, store=MemoryStore())
    card = monitor.gpus[0]
    size.on_train_begin()
    used, before = [], card.energy()
    for metric in (0.1, 0.2, 0.9):
        power.on_epoch_begin()
        for _ in range(100):
            step([card], 64)
            power.on_step_end()
        power.on_epoch_end()
        size.on_evaluate(metric)
        used.append(card.energy() - before)
        before = card.energy()
    power.on_train_end()
    assert size.converged and size.outcome is not None and power.best_limit is not None
    assert [point.joules for point in size.outcome.curve] == pytest.approx(used)
    units = [one for one in size.outcome.stretches if one.kind is Kind.EPOCH]
    assert sum(one.count for one in units) == 3 and len(units) == len(size.outcome.stretches)
    assert sum(one.joules or 0.0 for one in units) == pytest.approx(sum(used))


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_trial_that_was_left_open_is_not_charged_for_the_next_one(virtual_cards: VirtualCards, goes_on: bool) -> None:
    """Such as in a notebook, where a cell was interrupted and is run again. If it goes on, nobody can tell its part."""
    virtual_cards("v100?clock=virtual")
    spec = JobSpec(
        job_id="cell", job_id_prefix="cell", batch_sizes=(64,), default_batch_size=64, max_epochs=4, target_metric=0.9
    )
    monitor, store = ZeusMonitor(), MemoryStore()
    card, used = monitor.gpus[0], []
    first, second = (BatchSizeOptimizer(monitor, job=spec, store=store) for _ in range(2))
    for optimizer in (first, second):
        before = card.energy()
        optimizer.on_train_begin()
        for _ in range(10):
            step([card], 64)
            optimizer.on_step_end()
        used.append(card.energy() - before)
    second.on_evaluate(0.9)
    if goes_on:
        first.on_step_end()
    first.on_exception()  # what the end of the process does
    told = [one.joules for number in (1, 2) if (one := store.trial("cell", number).trial.outcome) is not None]
    assert told == ([None, used[1]] if goes_on else pytest.approx(used))
