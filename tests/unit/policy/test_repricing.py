"""After a change of η, bounds are costs in another unit: what a stopped run teaches follows, and nothing else does."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.store_places import SPEC
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache
from zeus.client.recurring import RecurringJob
from zeus.cost import CostModel
from zeus.job import Ask, Decision, Ending, Gpus, Outcome, Phase, Trial, replace
from zeus.policy.repricing import repriced
from zeus.store import MemoryStore

HERE = Gpus("V100", 1, 250.0)
ETAS = st.floats(0.0, 1.0)
USES = st.floats(1e-3, 1e9)


def ended(outcome: Outcome, limit: float | None = 1000.0, eta: float = 1.0) -> Trial:
    ask = Ask(number=1, recurrence=1, gpus=Gpus("V100", 1, 250.0), eta=eta)
    return Trial(ask=ask, decision=Decision(8, Phase.SAMPLING, "", limit), asked=1, ended=2, outcome=outcome)


@given(ETAS, ETAS, USES, USES, USES)
def test_a_bound_keeps_its_share_of_what_the_run_cost(
    old: float, new: float, joules: float, seconds: float, limit: float
) -> None:
    outcome = Outcome(ending=Ending.STOPPED, joules=joules, seconds=seconds, epochs=2, next_epoch_cost=limit / 3)
    before, now = (CostModel(eta, 250.0).cost(joules, seconds) for eta in (old, new))
    after = repriced(ended(outcome, limit, old), new)
    assert after.decision.cost_limit == pytest.approx(limit * now / before)
    assert after.outcome is not None
    assert after.outcome.next_epoch_cost == pytest.approx(limit / 3 * now / before)
    assert (after.outcome.joules, after.outcome.seconds, after.asked, after.ended) == (joules, seconds, 1, 2)


@given(ETAS, ETAS)
def test_a_trial_that_was_not_run_teaches_nothing_under_another_eta(old: float, new: float) -> None:
    trial = ended(Outcome(ending=Ending.STOPPED, joules=0.0, next_epoch_cost=5.0), eta=old)
    after = repriced(trial, new)
    assert after == trial if old == new else (after.ending, after.sequence) == (Ending.LOST, 2)


@pytest.mark.parametrize(
    "outcome", [Outcome(ending=Ending.CRASHED), Outcome(ending=Ending.STOPPED, joules=None, seconds=5.0, epochs=1)]
)
def test_a_trial_of_unknown_cost_stays_as_it_is(outcome: Outcome) -> None:
    assert repriced(ended(outcome), 0.0) == ended(outcome)


@pytest.mark.parametrize("policy", ["paper", "structured"])
def test_what_an_epoch_costs_is_not_taken_from_a_run_in_another_unit(policy: str) -> None:
    """Its energy was lost, so that its next epoch's cost, in the old unit, can be brought into no other."""
    unknown = Outcome(ending=Ending.STOPPED, joules=None, seconds=5.0, epochs=1, next_epoch_cost=1e6)
    silent = replace(unknown, next_epoch_cost=None)
    states = []
    for outcome in (unknown, silent):
        store = MemoryStore()
        job = RecurringJob.register(LocalJobs(store), replace(SPEC, policy=policy, mab_seed=1))
        job.tell(job.ask(HERE).number, outcome)
        store.register(replace(store.job("asr").spec, eta_knob=0.25))
        states.append(PolicyStateCache().state(store.job("asr"), partial(store.log, "asr")))
    assert states[0] == states[1]


def told(spec: dict[str, Any], *etas: float) -> tuple[RecurringJob, MemoryStore]:
    """A job that samples 8, which is stopped at its bound; then η is changed."""
    store = MemoryStore()
    job = RecurringJob.register(LocalJobs(store), replace(SPEC, policy="paper", num_pruning_rounds=0, **spec))
    for n in range(8):
        trial = job.ask(HERE)
        stops = trial.batch_size == 8 and trial.decision.cost_limit is not None
        outcome = Outcome(ending=Ending.CONVERGED, joules=100.0 + n, seconds=10.0, epochs=3, metric=0.9)
        if stops:  # spent little: it is the bound that says what it costs
            outcome = Outcome(ending=Ending.STOPPED, joules=20.0, seconds=1.0, epochs=1, next_epoch_cost=500.0)
        job.tell(trial.number, outcome)
    for eta in etas:
        store.register(replace(store.job("asr").spec, eta_knob=eta))
    return job, store


def mean_of_8(store: MemoryStore) -> tuple[float, list[float]]:
    job = store.job("asr")
    state = PolicyStateCache().state(job, partial(store.log, "asr"))
    limits = [
        repriced(kept.trial, job.spec.eta_knob).decision.cost_limit
        for kept in store.trials("asr")
        if kept.trial.ending is Ending.STOPPED
    ]
    return state.costs(8, "V100").mean, [one for one in limits if one is not None]


def test_a_stopped_run_is_learnt_at_its_bound_in_the_unit_of_now() -> None:
    _, store = told({"eta_knob": 1.0})
    at_bound = mean_of_8(store)
    assert at_bound[1] and at_bound[0] == pytest.approx(sum(at_bound[1]) / len(at_bound[1]))  # about 200 J, not 20
    _, store = told({"eta_knob": 1.0}, 0.0)
    mean, limits = mean_of_8(store)
    # 20 J and 1 s at 250 W: what was 20 is 250 now, and so is the bound 12.5 times as high.
    assert limits == pytest.approx([12.5 * one for one in at_bound[1]])
    assert mean == pytest.approx(sum(limits) / len(limits))


def test_a_change_there_and_back_changes_nothing() -> None:
    _, plain = told({"eta_knob": 1.0})
    _, back = told({"eta_knob": 1.0}, 0.2, 1.0)
    assert mean_of_8(back) == mean_of_8(plain)
    assert {kept.trial.ask.eta for kept in back.trials("asr")} == {1.0}


def test_whoever_asks_hears_the_eta_that_the_bound_is_a_cost_of() -> None:
    job, store = told({"eta_knob": 1.0}, 0.3)
    assert job.ask(HERE).ask.eta == 0.3
    assert [kept.trial.ask.eta for kept in store.trials("asr")] == [1.0] * 8 + [0.3]
