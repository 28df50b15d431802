"""One power limit an epoch, for a training that is only watched: the walk, the best, and what is put back."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from support.nvml.fake import FakeNvml
from support.waiting import eventually
from support.waiting import limits as waits
from zeus.cost import CostModel
from zeus.device.find import find
from zeus.job import Kind, UsageSegment
from zeus.launch.epoch_limits import EpochLimits
from zeus.settings import Mode, ProfilingPlan

pytestmark = pytest.mark.usefixtures("warm")

LIMIT = 250.0  # as the card is found
JOULES = {250.0: 2000.0, 200.0: 1500.0, 150.0: 1400.0, 100.0: 1900.0}  # of an epoch, which lasts 10 s at any limit
Open = Callable[..., EpochLimits]
Known = Sequence[Sequence[UsageSegment]]


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setenv("ZEUS_GPU", "virtual:v100?clock=virtual")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(
        mode: Mode = Mode.OPTIMIZE, known: Known = (), profiling: ProfilingPlan = ProfilingPlan.WALK
    ) -> EpochLimits:
        return EpochLimits(list(find().values()), CostModel(1.0, LIMIT), mode, tuple(JOULES), known, profiling)

    return make


def in_force() -> float:
    return find()[0].limit()


class Run:
    """A trial that is watched: what its epochs used."""

    def __init__(self, these: EpochLimits, warm_up: float = 1.0) -> None:
        self._these, self._warm_up = these, warm_up
        self.stretches: list[UsageSegment] = []

    def epochs(self, count: int, joules: float | None = None) -> list[float]:
        """Run so many; the limit of each, as the card has it."""
        tried = []
        for _ in range(count):
            limit, cold = in_force(), not self.stretches
            tried.append(limit)
            times = self._warm_up if cold else 1.0
            used = times * (JOULES[limit] if joules is None else joules)
            known = None if math.isnan(used) else used
            self.stretches.append(UsageSegment.of(Kind.EPOCH, limit, cold, 1, known, times * 10.0))
            self._these.epoch(self.stretches)
        return tried


def test_limits_are_tried_from_the_top_and_the_best_stays_until_the_end(limits: Open) -> None:
    with limits() as these:
        assert Run(these).epochs(7) == [250.0, 250.0, 200.0, 150.0, 100.0, 150.0, 150.0]
        assert these.is_settled
    assert in_force() == LIMIT


@pytest.mark.parametrize(
    ("profiling", "tried"),
    [
        (ProfilingPlan.WALK, [250.0, 250.0, 200.0, 250.0, 250.0]),
        (ProfilingPlan.PAPER, [250.0, 250.0, 200.0, 150.0, 100.0]),
    ],
)
def test_the_papers_plan_leaves_no_limit_out(
    limits: Open, monkeypatch: pytest.MonkeyPatch, profiling: ProfilingPlan, tried: list[float]
) -> None:
    monkeypatch.setitem(JOULES, 200.0, 2500.0)  # more than 20 % worse
    with limits(profiling=profiling) as these:
        assert Run(these).epochs(5) == tried


def test_a_cold_first_epoch_is_compared_with_no_steady_one(limits: Open) -> None:
    with limits() as these:
        run = Run(these, warm_up=5.0)
        assert run.epochs(6) == [250.0, 250.0, 200.0, 150.0, 100.0, 150.0]
        assert these.profile is not None
        assert {one.limit_watts: one.joules for one in these.profile.slices} == JOULES


def test_trainings_of_one_epoch_walk_one_limit_a_trial_cold_with_cold(limits: Open) -> None:
    known: list[list[UsageSegment]] = []
    tried = []
    for _ in range(6):
        with limits(known=known) as these:
            run = Run(these, warm_up=5.0)
            tried += run.epochs(1)
            known.append(run.stretches)
    assert tried == [250.0, 200.0, 150.0, 100.0, 150.0, 150.0]


def test_what_a_short_training_did_not_measure_the_next_one_does(limits: Open) -> None:
    with limits() as first:
        one = Run(first)
        assert one.epochs(3) == [250.0, 250.0, 200.0]
        assert not first.is_settled
    with limits(known=[one.stretches]) as second:
        two = Run(second)
        assert two.epochs(3) == [150.0, 100.0, 150.0]
    with limits(known=[one.stretches, two.stretches]) as third:
        assert Run(third).epochs(1) == [150.0]
        assert third.is_settled


def test_observing_goes_back_to_what_was_found_when_all_is_measured(limits: Open) -> None:
    with limits(Mode.OBSERVE) as these:
        assert Run(these).epochs(7) == [250.0, 250.0, 200.0, 150.0, 100.0, 250.0, 250.0]
        assert these.is_settled


@pytest.mark.parametrize(("mode", "read_only"), [(Mode.OFF, "0"), (Mode.OPTIMIZE, "1")])
def test_who_may_not_set_limits_measures_the_one_found(
    limits: Open, monkeypatch: pytest.MonkeyPatch, mode: Mode, read_only: str
) -> None:
    monkeypatch.setenv("ZEUS_READ_ONLY", read_only)
    with limits(mode) as these:
        assert Run(these).epochs(3) == [LIMIT] * 3
        assert these.profile is not None
        assert [one.limit_watts for one in these.profile.slices] == [LIMIT]
        assert these.is_settled


def test_energy_that_is_not_known_ends_the_walk_and_puts_the_limit_back(limits: Open) -> None:
    with limits() as these:
        run = Run(these)
        run.epochs(2)
        assert in_force() == 200.0
        run.epochs(1, joules=math.nan)
        assert (in_force(), these.why_not) == (LIMIT, "the energy cannot be measured")


def test_a_limit_that_could_not_be_read_is_not_said_to_be_in_force(
    fake_nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root is given a private keeper for NVIDIA cards")
    monkeypatch.setenv("ZEUS_GPU", "nvml")
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))
    monkeypatch.setenv("ZEUS_TIME_LIMITS", waits(driver_answer=0.2))
    for name, value in fake_nvml.env().items():
        monkeypatch.setenv(name, value)
    gpus = list(find().values())
    top = gpus[0].limit()
    with EpochLimits(gpus, CostModel(1.0, top), Mode.OPTIMIZE, (400.0, 300.0)) as these:
        assert these.in_force == 400.0
        for card in fake_nvml.cards:
            card.fail("all", "hang")
        these.epoch([UsageSegment.of(Kind.EPOCH, 400.0, True, 1, None, 10.0)])
        assert (these.in_force, these.why_not) == (None, "the energy cannot be measured")
        for card in fake_nvml.cards:
            card.heal()
    eventually(lambda: not list((tmp_path / "keeper").glob("*.json")))
    assert [gpu.limit() for gpu in gpus] == [top] * len(gpus)
