"""One power limit an epoch, for a training that is only watched: the walk, the best, and what is put back."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from zeus.cost import CostModel
from zeus.device.find import find
from zeus.env import Mode
from zeus.launch.limits import EpochLimits
from zeus.profile import PowerProfile

LIMIT = 250.0  # as the card is found
JOULES = {250.0: 2000.0, 200.0: 1500.0, 150.0: 1400.0, 100.0: 1900.0}  # of an epoch, which lasts 10 s at any limit
Open = Callable[..., EpochLimits]


@pytest.fixture
def limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setenv("ZEUS_GPU", "virtual:v100?clock=virtual")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(mode: Mode = Mode.OPTIMIZE, stored: PowerProfile | None = None) -> EpochLimits:
        return EpochLimits(list(find().values()), CostModel(1.0, LIMIT), mode, tuple(JOULES), stored)

    return make


def in_force() -> float:
    return find()[0].limit()


def epochs(these: EpochLimits, count: int) -> list[float]:
    """Run so many; the limit of each, as the card has it."""
    tried = []
    for _ in range(count):
        tried.append(in_force())
        these.epoch(JOULES[in_force()], 10.0)
    return tried


def test_limits_are_tried_from_the_top_and_the_best_stays_until_the_end(limits: Open) -> None:
    with limits() as these:
        assert epochs(these, 6) == [250.0, 200.0, 150.0, 100.0, 150.0, 150.0]
        assert these.best is not None and these.best.limit_watts == 150.0
        assert these.next_epoch() == these.cheapest_epoch() == 1400.0
    assert in_force() == LIMIT


def test_what_a_short_training_did_not_measure_the_next_one_does(limits: Open) -> None:
    with limits() as first:
        assert epochs(first, 2) == [250.0, 200.0]
        assert first.best is None
        kept = first.profile
    with limits(stored=kept) as second:
        assert epochs(second, 3) == [150.0, 100.0, 150.0]
    with limits(stored=second.profile) as third:
        assert epochs(third, 1) == [150.0]
        assert third.profile == second.profile


def test_observing_goes_back_to_what_was_found_when_all_is_measured(limits: Open) -> None:
    with limits(Mode.OBSERVE) as these:
        assert epochs(these, 6) == [250.0, 200.0, 150.0, 100.0, 250.0, 250.0]
        assert these.best is not None and these.best.limit_watts == 150.0


@pytest.mark.parametrize(("mode", "read_only"), [(Mode.OFF, "0"), (Mode.OPTIMIZE, "1")])
def test_who_may_not_set_limits_measures_the_one_found(
    limits: Open, monkeypatch: pytest.MonkeyPatch, mode: Mode, read_only: str
) -> None:
    monkeypatch.setenv("ZEUS_READ_ONLY", read_only)
    with limits(mode) as these:
        assert epochs(these, 3) == [LIMIT] * 3
        assert these.profile is not None
        assert [one.limit_watts for one in these.profile.slices] == [LIMIT]
        assert these.best is not None and these.best.limit_watts == LIMIT


def test_what_was_measured_before_outlives_a_run_that_may_not_set_limits(limits: Open) -> None:
    with limits() as first:
        epochs(first, 4)
    with limits(Mode.OFF, first.profile) as second:
        second.epoch(1.0, 1.0)
    assert second.profile == first.profile


def test_energy_that_is_not_known_ends_the_walk_and_puts_the_limit_back(limits: Open) -> None:
    with limits() as these:
        epochs(these, 1)
        assert in_force() == 200.0
        assert not these.epoch(math.nan, 10.0)
        assert (in_force(), these.why_not) == (LIMIT, "the energy of a GPU is not known")
