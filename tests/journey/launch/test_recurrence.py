"""The loop of a recurrence, over a store in memory: tries, their bound, what is given up, and costs that drift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.errors import InputError
from zeus.job import Ending, Gpus, JobSpec, Outcome, Phase, Trial
from zeus.launch.recurrence import LaunchedRecurrence, recur
from zeus.store import MemoryStore, Store

pytestmark = pytest.mark.usefixtures("warm")

PLACE = Gpus("V100", 1, 250.0)
CRASHED = Outcome(ending=Ending.CRASHED)


def job(store: Store | None = None, **knobs: Any) -> RecurringJob:
    given = {
        "batch_sizes": (8, 16, 32),
        "default_batch_size": 16,
        "eta_knob": 1.0,
        "mab_seed": 0,
        "policy": "paper",
        **knobs,
    }
    return RecurringJob.register(LocalJobs(store or MemoryStore()), JobSpec(job_id_prefix="asr", **given))


def converged(cost: float) -> Outcome:
    return Outcome(ending=Ending.CONVERGED, joules=cost, seconds=1.0, epochs=4)


def by_size(outcomes: dict[int, Outcome]) -> Callable[[Trial], Outcome]:
    return lambda trial: outcomes[trial.batch_size]


def bounded(costs: dict[int, float]) -> Callable[[Trial], Outcome]:
    """A training that is stopped at its bound, as a real one is."""

    def run(trial: Trial) -> Outcome:
        cost, bound = costs[trial.batch_size], trial.decision.cost_limit
        if bound is not None and cost > bound:
            return Outcome(ending=Ending.STOPPED, joules=bound, seconds=1.0, epochs=2, next_epoch_cost=cost - bound)
        return converged(cost)

    return run


def sizes(recurrence: LaunchedRecurrence) -> list[int]:
    return [one.batch_size for one in recurrence.tries]


def opened(store: Store, this: RecurringJob) -> set[int]:
    """The numbers of all trials until now."""
    return {kept.trial.number for kept in store.trials(this.spec.id)}


def cost(one: LaunchedRecurrence) -> float | None:
    use = one.use(1.0)
    return None if use is None else use.cost


def test_a_try_that_is_stopped_is_followed_by_one_of_another_size_in_the_same_recurrence() -> None:
    this, run = job(), bounded({8: 5000.0, 16: 1000.0, 32: 900.0})
    first, second = recur(this, PLACE, run), recur(this, PLACE, run)
    assert (sizes(first), sizes(second)) == ([16], [8, 32])
    assert [one.ending for one in second.tries] == [Ending.STOPPED, Ending.CONVERGED]
    assert {one.ask.recurrence for one in second.tries} == {second.number} == {2}
    assert cost(second) == 2 * 1000 + 900


def test_a_size_that_crashed_is_not_offered_again() -> None:
    this = job()
    run = by_size({8: converged(1200.0), 16: converged(1000.0), 32: CRASHED})
    tried = [size for _ in range(12) for size in sizes(recur(this, PLACE, run))]
    assert tried.count(32) == 1


def test_when_each_size_has_crashed_the_job_says_what_to_do() -> None:
    with pytest.raises(InputError, match="Fix the training script"):
        recur(job(), PLACE, lambda trial: CRASHED)


def test_a_recurrence_ends_after_its_last_try_which_runs_with_no_bound() -> None:
    failed = Outcome(ending=Ending.NOT_CONVERGED, joules=10.0, seconds=1.0, epochs=4)
    last = recur(job(), PLACE, lambda trial: failed, max_tries=5)
    assert (len(last.tries), last.converged) == (5, False)
    assert last.tries[-1].decision.phase is Phase.UNBOUNDED
    assert last.tries[-1].decision.cost_limit is None


def test_sizes_that_are_not_run_cost_nothing_and_the_recurrence_still_ends() -> None:
    this = job()
    recur(this, PLACE, by_size({16: converged(10.0)}))
    unfit = Outcome(ending=Ending.STOPPED, joules=0.0, epochs=0, next_epoch_cost=1e6)
    again = recur(this, PLACE, lambda t: unfit if t.decision.cost_limit is not None else converged(10.0), max_tries=9)
    assert again.converged
    assert cost(again) == 10.0
    assert len(again.tries) <= 9


def test_a_run_that_raises_gives_its_trial_up_with_what_it_had_used() -> None:
    this = job()

    def interrupted(trial: Trial) -> Outcome:
        this.renew(trial.number, Outcome(ending=Ending.LOST, joules=70.0, seconds=1.0, epochs=1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recur(this, PLACE, interrupted)
    lost = this.trial(1)
    assert lost.ending is Ending.LOST
    assert lost.outcome is not None and lost.outcome.joules == 70.0
    following = recur(this, PLACE, bounded({8: 1.0, 16: 1.0, 32: 1.0}))
    assert (following.number, following.converged) == (2, True)


def test_a_run_with_the_key_of_one_that_was_interrupted_continues_its_recurrence() -> None:
    store = MemoryStore()
    this, run = job(store), bounded({8: 5000.0, 16: 1000.0, 32: 900.0})
    recur(this, PLACE, run)

    def preempted(trial: Trial) -> Outcome:
        if trial.ask.attempt == 1:
            return run(trial)
        this.renew(trial.number, Outcome(ending=Ending.LOST, joules=70.0, seconds=1.0, epochs=1))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recur(this, PLACE, preempted, key="k")
    recur(this, PLACE, run)  # another run meanwhile
    ran: list[Trial] = []

    def again(trial: Trial) -> Outcome:
        ran.append(trial)
        return run(trial)

    continued = recur(this, PLACE, again, key="k", earlier=opened(store, this))
    assert (continued.number, continued.converged) == (2, True)
    assert [one.ending for one in continued.tries] == [Ending.STOPPED, Ending.LOST, Ending.CONVERGED]
    assert sizes(continued)[1] == sizes(continued)[2]  # a loss teaches nothing about its size
    assert [one.number for one in ran] == [continued.tries[-1].number]
    assert recur(this, PLACE, again, key="k", earlier=opened(store, this)) == continued  # over: nothing runs
    assert len(ran) == 1


def test_an_open_trial_of_a_killed_run_is_given_up_with_what_it_had_used() -> None:
    this, run = job(), bounded({8: 1.0, 16: 1.0, 32: 1.0})
    killed = this.ask(PLACE, key="k.1")
    this.renew(killed.number, Outcome(ending=Ending.LOST, joules=70.0, seconds=1.0, epochs=1))
    continued = recur(this, PLACE, run, key="k", earlier={killed.number})
    assert [(one.number, one.ending) for one in continued.tries] == [(1, Ending.LOST), (2, Ending.CONVERGED)]
    assert cost(continued) == 71.0
    assert {one.ask.recurrence for one in continued.tries} == {1}


def test_a_run_that_returns_a_loss_ends_its_recurrence_unfinished() -> None:
    lost = recur(job(), PLACE, lambda trial: Outcome(ending=Ending.LOST))
    assert (len(lost.tries), lost.converged) == (1, False)


def test_a_try_that_told_its_own_outcome_is_not_told_twice() -> None:
    this = job()

    def script(trial: Trial) -> Outcome:
        told = this.tell(trial.number, converged(50.0)).outcome
        assert told is not None
        return told

    assert cost(recur(this, PLACE, script)) == 50.0


def test_energy_that_one_try_does_not_know_makes_the_recurrences_cost_unknown() -> None:
    this = job()
    blind = Outcome(ending=Ending.NOT_CONVERGED, seconds=1.0, epochs=1)
    once = recur(this, PLACE, by_size({16: blind, 8: converged(5.0), 32: converged(5.0)}))
    assert once.use(1.0) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("window", "chosen"), [(10, 8), (0, 32)], ids=["window of 10", "nothing is forgotten"])
def test_a_window_finds_the_new_best_size_when_the_costs_of_the_best_triple(
    seed: int, window: int, chosen: int
) -> None:
    this = job(window_size=window, mab_seed=seed)

    def tried(recurrence: int) -> list[int]:
        swing = 1 + 0.05 * ((recurrence * 0.6180339887) % 1 - 0.5)
        best = 1000.0 if recurrence < 30 else 3000.0
        return sizes(recur(this, PLACE, bounded({8: 1700.0 * swing, 16: 2000.0 * swing, 32: best * swing})))

    before = Counter(size for n in range(1, 30) for size in tried(n))
    after = Counter(size for n in range(30, 55) for size in tried(n))
    assert before.most_common(1)[0][0] == 32
    assert after.most_common(1)[0][0] == chosen
