"""The accuracy of reported savings on a few drawn histories stays what it is.

The golden file is what this writes:

    python benchmarks/savings_accuracy.py --histories 30 --digits 0 > tests/golden/files/savings_accuracy.txt
"""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from support.paths import GOLDEN_FILES
from support.published import benchmark


@pytest.fixture(scope="module")
def accuracy() -> ModuleType:
    return benchmark("savings_accuracy")


def test_savings_are_as_accurate_as_they_were(
    accuracy: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["savings_accuracy.py", "--histories", "30", "--digits", "0"])
    assert accuracy.main() == 0
    assert capsys.readouterr().out == (GOLDEN_FILES / "savings_accuracy.txt").read_text()


def test_without_luck_noise_and_limits_the_saving_is_the_true_one(accuracy: ModuleType) -> None:
    histories = []
    for number in range(1, 31):
        rng = np.random.default_rng([7, number])
        world = accuracy.draw_world(rng, number)
        same = (1.0,) * world.recurrences
        quiet = replace(world, luck=0.0, noise=(0.0, 0.0), within=0.0, growth="none", jump_at=0, levels=same, days=same)
        histories.append(accuracy.draw_history(replace(quiet, tuned=False), rng))
    told = accuracy.savings(accuracy.judge(histories))
    assert len(told) > 25
    assert max(np.abs(one.off).max() for one in told) < 0.05  # one run is corrected by what is usual of other sizes


def test_the_same_seed_draws_the_same_histories(accuracy: ModuleType) -> None:
    one, other = (accuracy.lines(accuracy.draw(3, 5)) for _ in range(2))
    assert one == other
