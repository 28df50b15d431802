"""What was seen to happen to recurring jobs elsewhere and must not happen here, each as a story."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from support.stories import CRASHED, NOT_CONVERGED, Story, converged, fold, job, not_run, stopped
from zeus.errors import InputError
from zeus.job import Ending, Outcome, Phase
from zeus.policy.common import Sample

pytestmark = pytest.mark.usefixtures("warm")

ALL_FINE = {8: converged(60.0), 16: converged(80.0), 32: converged(70.0)}
UNKNOWN_ENERGY = Outcome(ending=Ending.CONVERGED, seconds=1.0, epochs=3)


def pruned(**knobs: object) -> Story:
    """A story in which pruning is over: 8 costs 60, 16 costs 80, 32 costs 70."""
    story = Story(job(**knobs))
    story.run(ALL_FINE, 6)
    assert story.ask().decision.phase is Phase.SAMPLING
    return story


# ---------------------------------------------------------------------- crashes


def test_a_size_that_crashed_is_not_offered_again_until_its_owner_says_so() -> None:
    story = Story(job())
    story.tell(story.ask(), converged(80.0))
    crashed = story.ask(recurrence=2)
    assert crashed.batch_size == 8
    story.tell(crashed, CRASHED)
    assert 8 not in story.run(ALL_FINE, 30)
    story.pardon(8)
    assert 8 in story.run(ALL_FINE, 30)


def test_a_crash_says_nothing_of_cost() -> None:
    story = pruned()
    before = story.state.arms
    story.tell(story.trials[-1], Outcome(ending=Ending.CRASHED, joules=1.0, seconds=0.1, epochs=0))
    assert story.state.arms == before
    assert story.state.limit("") == 120.0


def test_when_all_sizes_crashed_the_error_says_what_to_do() -> None:
    story = Story(job())
    for _ in range(3):
        story.tell(story.ask(recurrence=1), CRASHED)
    with pytest.raises(InputError, match=r"all batch sizes \[8, 16, 32\] crashed or ran out of memory.*allow them"):
        story.ask()


def test_memory_that_one_gpu_lacks_another_may_have() -> None:
    story = Story(job(batch_sizes=(16,)))
    story.tell(story.ask(gpu="small"), CRASHED)
    assert story.ask(gpu="large").batch_size == 16


# ---------------------------------------------------------------------- killed jobs and concurrency


def test_concurrent_submissions_run_the_default_then_the_best_known() -> None:
    story = Story(job())
    explorer, other = story.ask(), story.ask()
    assert (explorer.decision.phase, explorer.batch_size) == (Phase.PRUNING, 16)
    assert (other.decision.phase, other.batch_size) == (Phase.CONCURRENT, 16)
    story.tell(explorer, converged(80.0))
    explorer, other = story.ask(), story.ask()
    assert (explorer.decision.phase, explorer.batch_size) == (Phase.PRUNING, 8)
    assert (other.decision.phase, other.batch_size) == (Phase.CONCURRENT, 16)
    story.tell(explorer, converged(60.0))
    assert (story.ask().batch_size, story.ask().batch_size) == (32, 8)


def test_a_killed_job_does_not_freeze_exploration_once_its_lease_lapsed() -> None:
    story = Story(job())
    killed = story.ask()
    story.lose(killed)
    assert story.ask().decision.phase is Phase.PRUNING


def test_a_killed_job_does_not_freeze_exploration_while_its_lease_runs() -> None:
    story = Story(job())
    story.ask()  # never heard of again
    for _ in range(3):
        other = story.ask()
        assert other.decision.phase is Phase.CONCURRENT
        story.tell(other, converged(80.0))
    assert story.ask().decision.phase is Phase.PRUNING
    assert story.ask().decision.phase is Phase.CONCURRENT  # held again, by the new explorer


def test_a_lost_trial_teaches_nothing_and_costs_nothing() -> None:
    story = pruned()
    limit, arms = story.state.limit(""), story.state.arms
    story.lose(story.trials[-1])
    assert (story.state.limit(""), story.state.arms, story.state.open) == (limit, arms, {})


def test_a_late_result_of_an_earlier_phase_is_learnt() -> None:
    story = Story(job())
    late = story.ask()
    story.lose(late)
    story.run(ALL_FINE, 6)
    before = story.state.costs(16, "")
    story.tell(late, converged(50.0))
    assert story.state.costs(16, "") == before.add(50.0)
    assert story.state.limit("") == 100.0
    assert fold(story.policy, story.job, story.trials) == story.state


def test_a_late_failure_of_an_earlier_phase_does_not_undo_the_walk() -> None:
    story = Story(job())
    late = story.ask()
    story.lose(late)
    story.run(ALL_FINE, 6)
    walk = story.state.side("").walk
    story.tell(late, NOT_CONVERGED)
    assert story.state.side("").walk == walk


# ---------------------------------------------------------------------- the bound


def test_a_cheap_run_that_did_not_converge_does_not_lower_the_bound() -> None:
    story = Story(job())
    story.tell(story.ask(), converged(80.0))
    story.tell(story.ask(recurrence=2), stopped(1.0))
    assert story.ask(recurrence=2).decision.cost_limit == 160.0


def test_the_bound_is_of_whole_recurrences_and_the_arm_learns_its_own_try() -> None:
    story = Story(job())
    story.tell(story.ask(), converged(80.0))
    story.tell(story.ask(recurrence=2), stopped(30.0))
    story.tell(story.ask(recurrence=2), converged(45.0))
    assert story.state.limit("") == 2 * (30.0 + 45.0)
    assert story.state.costs(32, "") == Sample.of([45.0])


def test_a_stopped_run_does_not_look_cheap_while_sampling() -> None:
    story = pruned()
    arm = story.trials[-1]
    assert arm.batch_size == 8
    story.tell(arm, stopped(20.0))
    assert story.state.costs(8, "") == Sample.of([60.0, 60.0, 120.0])


def test_a_run_goes_on_exactly_as_long_as_it_stays_within_the_bound() -> None:
    story = pruned()
    trial = story.trials[-1]
    assert trial.decision.cost_limit == 120.0
    assert story.policy.keep_going(story.state, trial, 3, 120.0)
    assert not story.policy.keep_going(story.state, trial, 3, 120.001)
    assert not story.policy.keep_going(story.state, trial, story.job.max_epochs, 1.0)


def test_costs_that_drift_upward_are_not_stopped_for_ever() -> None:
    """Everything triples. The last try of a recurrence has no bound, and the window forgets the old minimum."""
    story = pruned(window_size=5)
    story.tell(story.trials[-1], converged(60.0))
    for recurrence in range(100, 106):
        for attempt in range(1, 20):
            trial = story.ask(recurrence=recurrence, attempt=attempt)
            assert trial.decision.cost_limit is not None
            if trial.decision.cost_limit >= 240.0:
                break
            story.tell(trial, stopped(100.0))
        else:
            trial = story.ask(recurrence=recurrence, attempt=20, last=True)
            assert (trial.decision.phase, trial.decision.cost_limit) == (Phase.UNBOUNDED, None)
        story.tell(trial, converged(200.0))
    limit = story.state.limit("")
    assert limit is not None
    assert limit >= 240.0


def test_after_the_best_arm_has_tripled_another_is_the_most_chosen_within_25() -> None:
    story, luck = Story(job(window_size=10)), random.Random("drift")
    costs = {8: 100.0, 16: 130.0, 32: 160.0}
    chosen = []
    for recurrence in range(1, 56):
        if recurrence == 30:
            costs[8] *= 3
        for attempt in range(1, 21):
            trial = story.ask(recurrence=recurrence, attempt=attempt, last=attempt == 20)
            cost, limit = costs[trial.batch_size] * luck.uniform(0.95, 1.05), trial.decision.cost_limit
            if limit is not None and cost > limit:
                story.tell(trial, stopped(0.9 * limit))
            else:
                story.tell(trial, converged(cost))
                break
        chosen.append(trial.batch_size)
    assert Counter(chosen[15:29]).most_common(1)[0][0] == 8
    assert Counter(chosen[29:54]).most_common(1)[0][0] == 16


def test_a_size_whose_first_epoch_does_not_fit_is_set_aside_only_while_it_does_not() -> None:
    story = Story(job(window_size=2))
    story.run({8: converged(70.0), 16: converged(80.0), 32: converged(60.0)}, 7)
    trial = story.ask()
    assert (trial.batch_size, trial.decision.cost_limit) == (32, 120.0)
    story.tell(trial, not_run(first_epoch_cost=130.0))
    assert story.run(dict.fromkeys((8, 16), converged(70.0)), 1) == [8]
    assert story.ask().batch_size == 8  # one 60 is still in the window
    story.tell(story.trials[-1], converged(70.0))
    trial = story.ask()
    assert (trial.batch_size, trial.decision.cost_limit) == (32, 140.0)


def test_when_no_first_epoch_fits_the_best_known_runs_without_a_bound() -> None:
    story = pruned()
    for size in story.job.batch_sizes:
        story.profile(size, epoch_cost=500.0)
    decision = story.ask().decision
    assert (decision.batch_size, decision.phase, decision.cost_limit) == (8, Phase.UNBOUNDED, None)


# ---------------------------------------------------------------------- convergence


def test_a_default_that_does_not_converge_is_passed_over_and_said() -> None:
    story = Story(job())
    tried = story.run({8: converged(60.0), 16: NOT_CONVERGED, 32: converged(70.0)}, 12)
    assert tried[:5] == [16, 8, 32, 8, 32]
    assert 16 not in tried[1:]
    assert "; the default size 16 has not reached the target" in story.ask().decision.reason


def test_if_all_sizes_would_be_pruned_those_that_converged_stay() -> None:
    story = Story(job())
    story.tell(story.ask(), converged(80.0))
    for _ in range(3):  # 8, 32, then 16 again in round 2: all fail
        story.tell(story.ask(recurrence=2), stopped(160.0))
    assert story.state.side("").walk.sizes == (16,)
    decision = story.ask(recurrence=2).decision
    assert (decision.batch_size, decision.phase) == (16, Phase.SAMPLING)


def test_a_failure_ends_its_direction_only_once_something_has_converged() -> None:
    sizes = (4, 8, 16, 32, 64)
    hopeless_middle = Story(job(batch_sizes=sizes))
    tried = hopeless_middle.run({**dict.fromkeys(sizes, NOT_CONVERGED), 4: converged(60.0), 64: converged(70.0)}, 2)
    assert tried == [16, 8, 4, 32, 4]  # 8 failed and 4 was tried all the same; 32 failed after 4 converged: no 64
    usual = Story(job(batch_sizes=sizes))
    assert usual.run({**dict.fromkeys(sizes, converged(60.0)), 8: NOT_CONVERGED}, 3) == [16, 8, 32, 64]


def test_where_nothing_ever_converges_all_sizes_are_tried() -> None:
    tried = Story(job()).run(dict.fromkeys((8, 16, 32), NOT_CONVERGED))
    assert len(tried) == 20
    assert tried[:6] == [16, 8, 32, 16, 8, 32]


def test_unknown_energy_ends_the_recurrence_and_teaches_nothing() -> None:
    story = Story(job())
    story.tell(story.ask(), UNKNOWN_ENERGY)
    assert story.state.limit("") is None
    assert not story.state.arms
    assert story.ask().batch_size == 8  # it did converge: the walk goes on


def test_a_stop_of_unknown_energy_keeps_its_recurrence_out_of_the_bound() -> None:
    story = Story(job())
    story.tell(story.ask(), converged(80.0))
    story.tell(story.ask(recurrence=2), Outcome(ending=Ending.STOPPED, seconds=1.0, epochs=1))
    story.tell(story.ask(recurrence=2), converged(20.0))
    assert story.state.limit("") == 160.0


def test_where_energy_is_never_known_the_default_is_run() -> None:
    story = Story(job())
    assert story.run(dict.fromkeys((8, 16, 32), UNKNOWN_ENERGY), 12)[-3:] == [16, 16, 16]


def test_equal_costs_do_not_divide_by_zero_and_do_not_lock_in() -> None:
    story = Story(job())
    assert set(story.run(dict.fromkeys((8, 16, 32), converged(60.0)), 20)) == {8, 16, 32}


# ---------------------------------------------------------------------- another GPU model


def test_a_changed_gpu_is_a_new_set_of_beliefs_not_a_refusal() -> None:
    story = Story(job())
    story.run(
        {8: converged(60.0, epochs=6), 16: converged(80.0, epochs=4), 32: converged(70.0, epochs=5)}, 8, gpu="V100"
    )
    here = story.ask(gpu="A40")
    assert here.decision.phase is Phase.SAMPLING  # what survived pruning there is what is offered here
    assert here.decision.cost_limit is None  # a bound of another GPU's cost says nothing here
    assert story.state.costs(8, "A40").count == 0  # not translated before it is profiled
    story.profile(8, epoch_cost=50.0, gpu="A40")
    seen = story.state.costs(8, "V100").count
    assert story.state.costs(8, "A40").count == seen
    assert story.state.costs(8, "A40").mean == pytest.approx(6 * 50.0)
    assert story.state.costs(8, "V100").mean == pytest.approx(60.0)


def test_translated_beliefs_lead_to_the_size_that_is_best_on_the_new_gpu() -> None:
    story = Story(job())
    there = {8: converged(60.0, epochs=6), 16: converged(80.0, epochs=4), 32: converged(70.0, epochs=5)}
    assert story.run(there, 12, gpu="V100")[-1] == 8
    for size, epoch_cost in ((8, 50.0), (16, 20.0), (32, 40.0)):
        story.profile(size, epoch_cost, gpu="A40")
    assert {story.ask(gpu="A40").batch_size for _ in range(20)} == {16}
    assert story.ask(gpu="V100").batch_size == 8


def test_runs_that_were_stopped_are_not_translated() -> None:
    story = pruned()
    story.tell(story.trials[-1], stopped(20.0))
    story.profile(8, epoch_cost=10.0, gpu="A40")
    assert story.state.costs(8, "A40").count == 2
