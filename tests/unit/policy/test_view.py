"""What a policy believes, as rows: the same numbers that it decides by."""

from __future__ import annotations

import math

import pytest

from support.stories import CRASHED, NOT_CONVERGED, Story, converged, job, not_run, stopped
from zeus.job import Decision, Outcome, Phase, replace
from zeus.policy.common import Sample
from zeus.policy.paper.thompson import Gaussian, observe
from zeus.policy.registry import find_policy
from zeus.policy.view import SizeView, Standing, from_events, view


def rows(story: Story, gpu: str = "") -> dict[int, SizeView]:
    found = view(story.state, story.job, story.events, gpu)
    assert [row.batch_size for row in found] == list(story.job.batch_sizes)
    return {row.batch_size: row for row in found}


def test_before_anything_has_happened_nothing_is_believed() -> None:
    for row in rows(Story(job())).values():
        assert row == SizeView(row.batch_size, Standing.UNTRIED, 0, 0, None, None)


def test_the_mean_and_spread_are_those_that_sampling_draws_from() -> None:
    story = Story(job(mab_num_explorations=2))
    costs = [100.0, 104.0, 96.0, 101.0]
    for cost in costs:
        trial = story.ask()
        while trial.batch_size != 16:
            story.tell(trial, converged(300.0 + trial.number))
            trial = story.ask()
        story.tell(trial, converged(cost))
    expected = observe(Sample.of(costs))
    assert isinstance(expected, Gaussian)
    row = rows(story)[16]
    assert (row.runs, row.converged, row.standing) == (4, 4, Standing.OFFERED)
    assert row.mean is not None and row.spread is not None
    assert math.isclose(row.mean, expected.mean)
    assert math.isclose(row.spread, 1 / math.sqrt(expected.precision))


def test_equal_costs_leave_no_doubt_and_a_prior_is_a_belief() -> None:
    story = Story(job())
    story.run({8: converged(5.0), 16: converged(5.0), 32: converged(9.0)}, recurrences=6)
    assert rows(story)[16].spread == 0.0
    informed = rows(Story(job(mab_prior_mean=50.0, mab_prior_precision=0.25)))
    assert (informed[8].mean, informed[8].spread) == (50.0, 2.0)


def test_a_size_that_failed_in_pruning_or_crashed_says_so() -> None:
    story = Story(job())
    story.run({8: NOT_CONVERGED, 16: converged(10.0), 32: CRASHED}, recurrences=3)
    found = rows(story)
    assert [found[size].standing for size in (8, 16, 32)] == [Standing.PRUNED, Standing.OFFERED, Standing.CRASHED]
    assert (found[8].runs, found[8].converged, found[32].runs) == (1, 0, 0)
    story.pardon(32)
    assert rows(story)[32].standing is not Standing.CRASHED


def test_a_size_whose_first_epoch_does_not_fit_is_set_aside() -> None:
    story = Story(job(num_pruning_rounds=0))
    for outcome in (converged(10.0), converged(10.0), not_run(500.0)):
        trial = story.ask()
        story.tell(trial, outcome)
    assert Standing.ASIDE in {row.standing for row in rows(story).values()}


def test_each_gpu_model_has_its_own_rows() -> None:
    story = Story(job())
    story.run({8: converged(5.0), 16: converged(6.0), 32: converged(9.0)}, recurrences=3, gpu="V100")
    assert rows(story, "V100")[16].runs == 1
    assert rows(story, "A40")[16].runs == 0


def test_the_structured_policy_shows_its_curves_of_sizes_that_never_ran_too() -> None:
    story = Story(job(), find_policy("structured"))
    assert all(row.mean is row.spread is None for row in rows(story).values())
    for size, cost in ((8, 12.0), (16, 10.0), (32, 9.0)):
        story.profile(size, cost)
    for _ in range(4):
        trial = replace(story.ask(), decision=Decision(16, Phase.SAMPLING, ""))
        story.observe(trial.end(story.next(), converged(100.0, 10)))
    known = rows(story)
    assert known[16].mean == pytest.approx(100.0, rel=0.02)
    assert known[32].standing is Standing.UNTRIED
    assert known[32].mean == pytest.approx(90.0, rel=0.1)
    ours, theirs = known[16].spread, known[32].spread
    assert ours is not None and theirs is not None and ours < theirs / 2
    story.profile(16, 50.0, "A40")
    assert rows(story, "A40")[16].mean == pytest.approx(
        500.0, rel=0.02
    )  # what was learnt elsewhere, at what it costs here


@pytest.mark.parametrize(("ending", "standing"), [(NOT_CONVERGED, Standing.PRUNED), (CRASHED, Standing.CRASHED)])
def test_the_structured_policy_says_whom_it_no_longer_offers(ending: Outcome, standing: Standing) -> None:
    story = Story(job(), find_policy("structured"))
    story.tell(story.ask(), ending)
    story.tell(story.ask(), converged(100.0, 10))
    assert rows(story)[16].standing is standing


def test_as_long_as_no_size_reached_the_target_all_are_offered() -> None:
    story = Story(job(), find_policy("structured"))
    story.tell(story.ask(), NOT_CONVERGED)
    assert rows(story)[16].standing is Standing.OFFERED


@pytest.mark.parametrize("ends", [converged(10.0), stopped(10.0), CRASHED])
def test_a_policy_that_cannot_say_is_shown_by_its_trials(ends: Outcome) -> None:
    story = Story(job(), find_policy("paper"))
    trial = story.ask()
    story.tell(trial, ends)
    found = {row.batch_size: row for row in from_events(story.job, story.events, "")}
    known = rows(story)
    assert found[16].runs == known[16].runs
    assert (found[16].standing is Standing.CRASHED) == (ends is CRASHED)
    assert found[16].mean == (10.0 if ends == converged(10.0) else None)
    assert found[8] == SizeView(8, Standing.UNTRIED, 0, 0, None, None)
    story.pardon(16)
    pardoned = from_events(story.job, story.events, "")
    assert all(row.standing is not Standing.CRASHED for row in pardoned)
