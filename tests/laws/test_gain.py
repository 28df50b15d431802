"""The saving that `zeus run` tells: against the default size at the highest limit, or nothing where that never ran."""

from __future__ import annotations

import pytest

from stories import Story, converged, job
from zeus.cost import CostModel
from zeus.job import Ending, Outcome, Trial
from zeus.launch.gain import gain
from zeus.launch.recurrence import Recurrence
from zeus.profile import PowerProfile, Slice

COST = CostModel(1.0, 100.0)
PROFILE = PowerProfile.of([Slice(250, 10, 10.0, 2000.0), Slice(150, 10, 12.0, 1000.0)])


def past(*outcomes: Outcome) -> list[Trial]:
    story = Story(job(batch_sizes=(16,)))
    for one in outcomes:
        story.tell(story.ask(), one)
    return story.trials


def once(trial: Trial) -> Recurrence:
    return Recurrence((trial,))


def test_without_a_profile_runs_are_compared_as_they_were() -> None:
    trials = past(converged(1000.0), converged(500.0))
    found = gain([once(trials[1])], trials, 16, None, COST, by_epoch=False)
    assert found is not None
    assert (found.default_joules, found.joules, found.recurrences) == (750.0, 500.0, 1)


def test_a_default_that_never_reached_the_target_is_compared_with_nothing() -> None:
    trials = past(converged(1000.0))
    assert gain([once(trials[0])], trials, 32, None, COST, by_epoch=False) is None


def test_the_default_is_taken_at_the_highest_limit_epoch_by_epoch_where_epochs_were_profiled() -> None:
    trials = past(converged(1000.0, epochs=4))
    epochs = PowerProfile.of([Slice(250, 1, 10.0, 800.0), Slice(150, 1, 12.0, 300.0)])
    found = gain([once(trials[0])], trials, 16, epochs, COST, by_epoch=True)
    assert found is not None
    assert (found.default_joules, found.default_seconds) == (3200.0, 40.0)


def test_what_runs_use_beside_their_epochs_is_the_defaults_too() -> None:
    epochs = PowerProfile.of([Slice(250, 1, 10.0, 200.0)])
    trials = past(Outcome(ending=Ending.CONVERGED, joules=1000.0, seconds=45.0, epochs=4))
    found = gain([once(trials[0])], trials, 16, epochs, COST, by_epoch=True)
    assert found is not None
    assert (found.default_joules, found.default_seconds) == (found.joules, found.seconds) == (1000.0, 45.0)


def test_a_run_that_was_profiling_is_not_scaled_and_later_ones_are() -> None:
    alone, later = past(converged(1000.0)), past(converged(1000.0), converged(400.0))
    first = gain([once(alone[0])], alone, 16, PROFILE, COST, by_epoch=False)
    second = gain([once(later[1])], later, 16, PROFILE, COST, by_epoch=False)
    assert first is not None and second is not None
    assert first.default_joules == 1000.0
    assert second.default_joules == pytest.approx(800.0)
    assert second.default_seconds == pytest.approx(1 / 1.2)


def test_now_is_the_mean_of_the_last_five_recurrences() -> None:
    trials = past(*(converged(float(100 * n)) for n in range(1, 9)))
    found = gain([once(one) for one in trials], trials, 16, None, COST, by_epoch=False)
    assert found is not None
    assert (found.joules, found.recurrences) == (600.0, 5)
