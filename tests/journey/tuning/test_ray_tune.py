"""Real Ray Tune on a virtual GPU, in a network of its own, where Ray can listen on loopback only."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.paths import EXAMPLES
from support.ray_place import ALONE, ray_folder, ray_variables
from support.waiting import PATIENCE_SECONDS
from zeus.errors import InputError

if importlib.util.find_spec("ray") is None:
    pytest.skip("Ray is not installed: pip install 'zeus-energy[ray]'", allow_module_level=True)

pytestmark = pytest.mark.peers

FOUND = 250.0
CARD = "virtual:v100?clock=virtual&load=resnet50"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with ray_folder() as made:
        yield made


def run(folder: Path, name: str, *command: str) -> str:
    """What a program prints, with folders of its own."""
    done = subprocess.run(
        [*ALONE, sys.executable, *command],
        env={**ray_variables(folder / name), "ZEUS_GPU": CARD},
        text=True,
        capture_output=True,
        timeout=3 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    program = Path(__file__).with_name("ray_searches.py")
    output = run(folder, "searches", str(program), str(folder / "results"), CARD)
    return dict(json.loads(output.splitlines()[-1]))


def test_results_have_energy_and_cost_and_the_cheapest_trial_can_be_asked_for(found: dict[str, Any]) -> None:
    search = found["in turn"]
    assert search["errors"] == []
    used = [one["zeus/joules"] for one in search["trials"]]
    assert sum(used) == pytest.approx(search["joules"])
    costs = [0.5 * one["zeus/joules"] + 0.5 * 250 * one["zeus/seconds"] for one in search["trials"]]
    assert [one["zeus/cost"] for one in search["trials"]] == pytest.approx(costs)
    assert search["best"] == pytest.approx(min(costs))


def test_later_trials_profile_nothing(found: dict[str, Any]) -> None:
    first, *others = found["in turn"]["trials"]
    assert len(first["limits"]) > 2
    assert [one["limits"] for one in others] == [[first["zeus/limit_watts"]]] * 3
    assert first["zeus/limit_watts"] < FOUND


def test_the_stopper_ends_a_trial_at_beta_times_the_cheapest_completed_one(found: dict[str, Any]) -> None:
    trials = found["in turn"]["trials"]
    assert [one["training_iteration"] for one in trials] == [3, 2, 5, 2]  # 9 epochs, stopped beyond 2 x 2
    assert found["in turn"]["limit"] == FOUND


def test_the_limit_is_restored_after_a_failure(found: dict[str, Any]) -> None:
    search = found["failing"]
    assert search["trials"][0]["limits"][-1] < FOUND
    assert len(search["errors"]) == 1
    assert "the user's own fault" in search["errors"][0]
    assert search["limit"] == FOUND


def test_two_trials_at_a_time_do_not_fight_over_the_limit(found: dict[str, Any]) -> None:
    search = found["together"]
    assert search["errors"] == []
    refused = [one["zeus/why_no_limit"] for one in search["trials"] if "zeus/why_no_limit" in one]
    assert len(refused) == 1
    assert "lease" in refused[0]
    assert search["limit"] == FOUND


def test_a_search_for_cost_without_a_gpu_fails_with_a_clear_sentence(found: dict[str, Any]) -> None:
    (error,) = found["without a gpu"]["errors"]
    assert "the cost of this trial is not known: no GPU is visible" in error


def test_a_trial_that_was_stopped_does_not_lower_the_bound() -> None:
    from zeus.tuning.ray_tune import CostStopper

    stopper = CostStopper(beta=2)
    assert not stopper("a", {"zeus/cost": 100.0})
    assert not stopper("a", {"zeus/cost": 100.0, "done": True})
    assert stopper("b", {"zeus/cost": 201.0})
    assert not stopper("c", {"zeus/cost": 10.0})  # not done: perhaps a scheduler ended it
    assert not stopper("d", {"zeus/cost": 199.0})
    assert not stopper.stop_all()


def test_beta_is_at_least_1() -> None:
    from zeus.tuning.ray_tune import CostStopper

    with pytest.raises(InputError, match="beta="):
        CostStopper(0.5)


def test_the_example_finds_cheap_trials_that_reach_the_target(folder: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'zeus-energy[torch]'")
    lines = run(folder, "example", str(EXAMPLES / "ray_tune_search.py")).splitlines()
    shown = [line for line in lines if line.startswith("accuracy ")]
    assert shown
    assert all(" cost " in line for line in shown)
