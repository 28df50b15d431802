"""Jobs, trials and outcomes are sound from the moment they are made."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stories import CRASHED, Story, converged, job, stopped
from zeus.errors import InputError
from zeus.job import Ending, JobSpec, Outcome, Profiled, Trial, history, replace


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"batch_sizes": ()}, "batch_sizes"),
        ({"batch_sizes": (16, 16)}, "each size once"),
        ({"batch_sizes": (0, 16)}, "at least 1"),
        ({"batch_sizes": (True, 16)}, "at least 1"),
        ({"batch_sizes": tuple(range(1, 1002))}, "at most 1000 sizes"),
        ({"default_batch_size": 64}, r"one of \[8, 16, 32\]"),
        ({"eta_knob": 1.5}, "from 0 to 1"),
        ({"eta_knob": math.nan}, "from 0 to 1"),
        ({"beta_knob": 0.5}, "at least 1"),
        ({"beta_knob": math.inf}, "at least 1"),
        ({"target_metric": math.nan}, "target_metric"),
        ({"max_epochs": 0}, "max_epochs"),
        ({"max_epochs": True}, "max_epochs"),
        ({"num_pruning_rounds": -1}, "num_pruning_rounds"),
        ({"window_size": -1}, "window_size"),
        ({"mab_prior_precision": -1.0}, "mab_prior_precision"),
        ({"mab_prior_mean": math.inf}, "mab_prior_mean"),
        ({"mab_num_explorations": 0}, "mab_num_explorations"),
        ({"mab_seed": -3}, "mab_seed"),
        ({"power_limits": (100.0, 0.0)}, "power_limits"),
        ({"power_limits": (100.0, 100.0)}, "power_limits"),
    ],
)
def test_a_bad_job_is_refused_with_the_value_and_what_to_give(knobs: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        job(**knobs)


def test_a_job_is_given_by_keyword() -> None:
    with pytest.raises(TypeError):
        JobSpec(None, "asr", (8,), 8)  # type: ignore[misc]


def test_without_an_id_the_next_recurrence_finds_the_same_job() -> None:
    assert job().id == job().id
    assert job().id.startswith("story-")
    assert job(job_id="mine").id == "mine"


@pytest.mark.parametrize(
    "tuned",
    [
        {"eta_knob": 0.3},
        {"beta_knob": 3.0},
        {"beta_knob": None},
        {"window_size": 5},
        {"max_epochs": 7},
        {"mab_seed": 4},
    ],
)
def test_what_may_be_tuned_does_not_make_another_job(tuned: dict[str, Any]) -> None:
    assert job(**tuned).id == job().id


@pytest.mark.parametrize("other", [{"batch_sizes": (16, 32)}, {"target_metric": 0.6}, {"default_batch_size": 8}])
def test_other_sizes_or_another_target_make_another_job(other: dict[str, Any]) -> None:
    assert job(**other).id != job().id


@given(st.permutations([8, 16, 32]))
def test_the_order_of_sizes_does_not_matter(sizes: list[int]) -> None:
    assert job(batch_sizes=sizes) == job()


def test_the_target_has_a_direction() -> None:
    assert job(target_metric=0.5).reached(0.5)
    assert not job(target_metric=0.5).reached(0.4)
    assert job(target_metric=0.5, higher_is_better_metric=False).reached(0.4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"joules": 0.0},
        {"joules": math.nan},
        {"joules": math.inf},
        {"joules": -1.0},
        {"seconds": 0.0},
        {"seconds": math.nan},
        {"epochs": 0},
        {"epochs": -1},
        {"metric": math.nan},
        {"ending": Ending.OPEN},
        {"ending": Ending.STOPPED, "epochs": 0},
    ],
)
def test_an_outcome_that_cannot_be_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        replace(converged(5.0), **wrong)


def test_unknown_energy_is_none() -> None:
    assert Outcome(ending=Ending.CONVERGED, seconds=1.0, epochs=3).joules is None


@pytest.mark.parametrize("wrong", [0.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["joules", "seconds", "max_watts"])
def test_an_epoch_that_cannot_be_is_rejected(name: str, wrong: float) -> None:
    epoch = {"joules": 1.0, "seconds": 1.0, "max_watts": 1.0, name: wrong}
    with pytest.raises(InputError, match=name):
        Profiled(sequence=1, batch_size=8, **epoch)


def test_a_trial_ends_once_in_time_or_late() -> None:
    story = Story(job())
    trial = story.ask()
    assert trial.ending is Ending.OPEN
    lost = trial.lose(2)
    assert lost.ending is Ending.LOST
    late = lost.end(3, converged(5.0))
    assert late.ending is Ending.CONVERGED
    for again in (lambda: late.end(4, stopped(5.0)), lambda: late.lose(4), lambda: lost.lose(4)):
        with pytest.raises(InputError, match="trial=1"):
            again()
    with pytest.raises(InputError, match="sequence numbers"):
        trial.end(1, CRASHED)


def test_a_history_is_what_happened_in_order() -> None:
    story = Story(job())
    first, second = story.ask(), story.ask()
    story.lose(first)
    story.tell(second, converged(7.0))
    story.profile(16, 2.0)
    story.tell(first, converged(9.0))
    facts: list[Any] = [*story.trials, *(e for e in story.events if not isinstance(e, Trial))]
    assert history(facts) == story.events
    assert history(reversed(facts)) == story.events


def test_a_name_of_broken_utf_8_is_refused() -> None:
    for name in ("job_id", "job_id_prefix"):
        with pytest.raises(InputError, match=f"{name}=.*UTF-8"):
            JobSpec(**{"job_id_prefix": "a", "batch_sizes": (8,), "default_batch_size": 8, name: "a\udcff"})
