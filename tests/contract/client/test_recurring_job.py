"""What the verbs of a recurring job promise (zeus.client.api), over every store and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.live import live
from support.store_places import REACHABLE, STORES
from zeus.client.api import Excerpt
from zeus.client.connection import Connection
from zeus.client.http import HttpJobs
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.client.resilient.jobs import ResilientJobs
from zeus.client.resilient.outbox import Outbox
from zeus.cost import Use
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.job import Ending, EpochPoint, Gpus, JobSpec, Outcome, Phase, replace
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import MemoryStore, Store

SPEC = JobSpec(
    job_id="asr/small & fast",
    job_id_prefix="asr",
    batch_sizes=(8, 16, 32),
    default_batch_size=16,
    eta_knob=1.0,
    policy="paper",
)
HERE = Gpus("V100", 2, 500.0)
CONVERGED = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=1.0, epochs=4, metric=0.9)
STOPPED = Outcome(ending=Ending.STOPPED, joules=10.0, seconds=1.0, epochs=1, next_epoch_cost=300.0)
SO_FAR = Outcome(ending=Ending.LOST, joules=40.0, seconds=3.0, epochs=2)
PROFILE = PowerProfile.of(
    [LimitSlice(250.0, 10, 1.0, 200.0), LimitSlice(150.0, 10, 1.2, 150.0)], limits=[250, 150, 100]
)

Register = Callable[[JobSpec], RecurringJob]


@pytest.fixture(params=[*STORES, *(f"{name}, outbox" for name in REACHABLE), "http"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Register]]:
    """A store, and how a job comes to it: by itself, or through a service."""
    if request.param != "http":
        name, _, resilient = request.param.partition(", ")
        place = STORES[name](request)
        store = place.open()
        if resilient:
            outbox = Outbox(LocalJobs(lambda: store, place.url or ""), folder=tmp_path / "spool")
            yield store, lambda spec: RecurringJob.register(ResilientJobs(outbox), spec)
        else:
            yield store, lambda spec: RecurringJob.register(LocalJobs(store), spec)
        place.close()
        return
    store = MemoryStore()
    with live(store) as address:
        service = Connection(address, environ={})
        yield (
            store,
            lambda spec: RecurringJob.register(
                ResilientJobs(Outbox(HttpJobs(service), folder=tmp_path / "spool")), spec
            ),
        )
        service.close()


@pytest.fixture
def job(kept: tuple[Store, Register]) -> RecurringJob:
    return kept[1](SPEC)


def test_the_nearest_profile_of_another_size_is_found_on_the_same_gpus_alone(job: RecurringJob) -> None:
    key = ProfileKey(SPEC.id, 16, "V100", 2)
    other = PowerProfile.of([LimitSlice(150.0, 10, 1.2, 150.0)])
    assert job.near(key) is None
    job.put(key, PROFILE)
    job.put(ProfileKey(SPEC.id, 32, "V100", 1), PROFILE)
    job.put(ProfileKey(SPEC.id, 32, "A40", 2), PROFILE)
    assert job.near(key) is None
    job.put(ProfileKey(SPEC.id, 8, "V100", 2), other)
    assert job.near(key) == other
    assert job.near(ProfileKey(SPEC.id, 32, "V100", 2)) == PROFILE


def test_sizes_whose_crashes_are_excused_are_offered_again(job: RecurringJob) -> None:
    first = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    second = job.ask(HERE, first.ask.recurrence)
    assert second.batch_size != first.batch_size
    job.tell(second.number, Outcome(ending=Ending.CRASHED))
    job.excuse([first.number, second.number])
    assert job.ask(HERE).batch_size == first.batch_size == 16


def test_a_size_that_ran_out_of_memory_earlier_stays_banned_when_others_are_excused(job: RecurringJob) -> None:
    too_large = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    bug = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    job.excuse([bug.number])
    again = job.ask(HERE)
    assert again.batch_size == bug.batch_size != too_large.batch_size


def test_each_trial_says_the_eta_that_it_was_decided_under(kept: tuple[Store, Register]) -> None:
    store, register = kept
    job = register(SPEC)
    first = job.ask(HERE)
    store.register(replace(SPEC, eta_knob=0.25))
    second = job.ask(HERE)
    assert (first.ask.eta, second.ask.eta) == (1.0, 0.25)
    assert [job.trial(one.number).ask for one in (first, second)] == [first.ask, second.ask]
    assert job.spec.eta_knob == 0.25  # as it is registered now


def test_a_job_is_registered_once_and_its_seed_is_drawn_once(kept: tuple[Store, Register]) -> None:
    store, register = kept
    first, again = register(SPEC), register(SPEC)
    assert first.spec == again.spec == store.job(SPEC.id).spec
    assert isinstance(first.spec.mab_seed, int)
    assert register(replace(SPEC, eta_knob=0.3)).spec.eta_knob == 0.3
    assert store.job(SPEC.id).revision == 2


# ---------------------------------------------------------------------- another life of the job, and other histories


def test_what_is_told_of_a_trial_never_reaches_another_one_that_has_its_number(kept: tuple[Store, Register]) -> None:
    store, register = kept
    job, elsewhere = register(SPEC), MemoryStore()
    mine = job.ask(HERE)
    other = RecurringJob.register(LocalJobs(elsewhere), SPEC).ask(
        HERE
    )  # as before a backup was made, or in another store
    store.forget(SPEC.id)
    store.import_lines(elsewhere.export())
    assert (mine.number, store.trial(SPEC.id, 1).trial) == (1, other)
    before = store.export()
    for verb in (
        lambda: job.tell(1, CONVERGED),
        lambda: job.tell(1, Outcome(ending=Ending.CRASHED)),
        lambda: job.renew(1, SO_FAR),
        lambda: job.progress(1, SO_FAR, 50.0),
        lambda: job.so_far(1),
        lambda: job.trial(1),
    ):
        with pytest.raises(NotKnown, match="of this store has another id"):
            verb()
    assert store.export() == before


def test_a_trial_that_was_handed_over_is_the_one_that_is_meant(kept: tuple[Store, Register]) -> None:
    store, register = kept
    register(SPEC).ask(HERE)
    trial = store.trial(SPEC.id, 1).trial
    job = register(SPEC)
    job.bind_trial_id(1, trial.id)
    assert job.tell(1, CONVERGED).ending is Ending.CONVERGED
    job.bind_trial_id(1, "0123456789abcdef")
    with pytest.raises(NotKnown, match="of this store has another id"):
        job.trial(1)


def test_what_a_life_has_learnt_does_not_reach_the_next_one(kept: tuple[Store, Register]) -> None:
    store, register = kept
    job = register(SPEC)
    crashed = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    store.restart(SPEC.id)
    for verb in (lambda: job.profiled(16, HERE, joules=5.0, seconds=1.0), lambda: job.excuse([crashed.number])):
        with pytest.raises(NotKnown):
            verb()
    with pytest.raises((NotKnown, AlreadyDone)):  # an outbox remembers how it ended
        job.tell(crashed.number, CONVERGED)
    assert store.log(SPEC.id).events == []
    assert job.ask(HERE).number == 2  # which is of the life that is
    job.profiled(16, HERE, joules=5.0, seconds=1.0)
    assert len(store.log(SPEC.id).events) == 2


def test_another_target_is_asked_for_and_undone_by_putting_the_first_one_back(kept: tuple[Store, Register]) -> None:
    store, register = kept
    job = register(SPEC)
    job.tell(job.ask(HERE).number, CONVERGED)
    known = job.ask(HERE).decision
    with pytest.raises(AlreadyDone, match="2 trials do not count any more"):
        register(replace(SPEC, target_metric=5.0))
    assert store.job(SPEC.id).spec.target_metric == SPEC.target_metric
    store.register(replace(SPEC, target_metric=5.0), void=True)
    assert job.ask(HERE).decision.cost_limit is None  # nothing is known of this target
    store.register(SPEC, void=True)
    assert (known.cost_limit, job.ask(HERE).decision.cost_limit) == (200.0, 200.0)


def test_what_is_counted_goes_with_the_trial_and_what_it_teaches(kept: tuple[Store, Register]) -> None:
    store, register = kept
    job, here = register(replace(SPEC, include=("gpu", "cpu"))), replace(HERE, include=("gpu", "cpu"))
    assert job.spec.include == ("gpu", "cpu")
    trial = job.ask(here)
    assert trial.ask.gpus == here
    job.profiled(16, here, joules=5.0, seconds=1.0)
    assert job.knowledge(trial).epoch == Use(5.0, 1.0)
    job.tell(trial.number, CONVERGED)
    assert store.trials(SPEC.id)[0].trial.ask.gpu_model == f"{HERE.label} + CPU"
    store.register(SPEC, void=True)
    assert store.trials(SPEC.id)[0].trial.ask.gpus == here


def test_the_first_trial_is_the_default_size_and_says_where_it_runs(job: RecurringJob) -> None:
    trial = job.ask(HERE)
    assert (trial.number, trial.batch_size, trial.ask.recurrence, trial.ask.attempt) == (1, 16, 1, 1)
    assert (trial.ask.gpu_model, trial.ask.max_watts, trial.decision.phase) == ("2 x V100", 500.0, Phase.PRUNING)
    assert trial.ending is Ending.OPEN
    assert job.trial(1) == trial


def test_a_trial_that_is_told_is_ended_and_telling_it_again_changes_nothing(
    kept: tuple[Store, Register], job: RecurringJob
) -> None:
    number = job.ask(HERE).number
    ended = job.tell(number, CONVERGED)
    assert (ended.ending, ended.outcome) == (Ending.CONVERGED, CONVERGED)
    assert job.tell(number, CONVERGED) == ended == job.trial(number)
    with pytest.raises(AlreadyDone, match="it was not overwritten"):
        job.tell(number, STOPPED)
    assert len(kept[0].log(SPEC.id).events) == 2


def test_another_try_is_of_the_same_recurrence_until_that_is_over(job: RecurringJob) -> None:
    first = job.ask(HERE)
    job.tell(first.number, STOPPED)
    second = job.ask(HERE, first.ask.recurrence, 2)
    assert (second.number, second.ask.recurrence, second.ask.attempt, second.ask.last) == (2, 1, 2, True)
    job.tell(second.number, CONVERGED)
    with pytest.raises(AlreadyDone, match="has reached its target"):
        job.ask(HERE, first.ask.recurrence)
    with pytest.raises(InputError, match="was never begun"):
        job.ask(HERE, 7)


def test_a_key_finds_the_trial_that_it_opened_whatever_became_of_it(job: RecurringJob) -> None:
    first = job.ask(HERE, key="run-7.1")
    assert job.ask(HERE, key="run-7.1") == first
    ended = job.tell(first.number, STOPPED)
    assert job.ask(HERE, key="run-7.1") == ended
    assert job.ask(HERE, first.ask.recurrence, key="run-7.2").number == 2
    assert job.ask(HERE).ask.recurrence == 2


def test_a_lost_try_is_not_one_of_the_tries_that_a_recurrence_may_have(job: RecurringJob) -> None:
    lost = job.ask(HERE, max_tries=1)
    job.tell(lost.number, SO_FAR)
    again = job.ask(HERE, lost.ask.recurrence, 1)
    assert (again.number, again.ask.recurrence, again.ask.attempt, again.ask.last) == (2, 1, 1, True)
    job.tell(again.number, STOPPED)
    with pytest.raises(AlreadyDone, match="used up its 1 try"):
        job.ask(HERE, lost.ask.recurrence, 1)


def test_what_was_used_so_far_is_remembered_and_outlives_a_loss(job: RecurringJob) -> None:
    number = job.ask(HERE).number
    assert job.so_far(number) is None
    assert job.renew(number).ending is Ending.OPEN
    job.renew(number, SO_FAR)
    assert job.so_far(number) == SO_FAR
    lost = job.tell(number, SO_FAR)
    assert (lost.ending, lost.outcome) == (Ending.LOST, SO_FAR)
    assert job.tell(number, CONVERGED).ending is Ending.CONVERGED


def test_progress_goes_on_below_the_bound_and_stops_above_it(job: RecurringJob) -> None:
    first = job.ask(HERE)
    assert job.progress(first.number, SO_FAR, 1e9)  # nothing to compare with yet
    job.tell(first.number, CONVERGED)
    second = job.ask(HERE)
    assert second.decision.cost_limit == pytest.approx(200.0)  # beta times the cheapest so far
    assert job.progress(second.number, SO_FAR, 150.0)
    assert not job.progress(second.number, SO_FAR, 201.0)


def test_what_is_not_there_is_said_to_be_so(job: RecurringJob) -> None:
    for verb in (lambda: job.trial(9), lambda: job.tell(9, CONVERGED), lambda: job.renew(9)):
        with pytest.raises(NotKnown, match="has no trial 9"):
            verb()


def test_an_epoch_that_was_profiled_is_an_event_of_the_job(kept: tuple[Store, Register], job: RecurringJob) -> None:
    job.profiled(16, HERE, joules=12.5, seconds=0.5)
    (event,) = kept[0].log(SPEC.id).events
    assert (event.batch_size, event.gpu_model, event.joules, event.max_watts) == (16, "2 x V100", 12.5, 500.0)  # type: ignore[union-attr]


def test_a_profile_is_kept_under_exactly_its_key(job: RecurringJob) -> None:
    key = ProfileKey(SPEC.id, 16, "V100", 2)
    assert job.get(key) is None
    job.put(key, PROFILE)
    assert job.get(key) == PROFILE
    assert job.get(replace(key, gpu_count=1)) is None


def test_decisions_depend_on_the_facts_alone_wherever_they_are_kept(kept: tuple[Store, Register]) -> None:
    seeded = replace(SPEC, mab_seed=7)
    job, twin = kept[1](seeded), RecurringJob.register(LocalJobs(MemoryStore()), seeded)
    told = {8: 120.0, 16: 100.0, 32: 140.0}
    chosen = []
    for _ in range(8):
        here, there = job.ask(HERE), twin.ask(HERE)
        assert (here.decision, here.asked) == (there.decision, there.asked)
        chosen.append(here.batch_size)
        outcome = replace(CONVERGED, joules=told[here.batch_size])
        assert job.tell(here.number, outcome).ended == twin.tell(there.number, outcome).ended
    assert set(chosen) == {8, 16, 32}


def test_many_at_once_get_a_trial_each(kept: tuple[Store, Register], job: RecurringJob) -> None:
    with ThreadPoolExecutor(8) as crowd:
        numbers = list(crowd.map(lambda _: job.ask(HERE).number, range(16)))
        list(crowd.map(lambda number: job.tell(number, CONVERGED), numbers))
    assert sorted(numbers) == list(range(1, 17))
    assert [event.sequence for event in kept[0].log(SPEC.id).events] == list(range(1, 33))


def test_the_newest_part_of_a_long_past_is_told_alone(job: RecurringJob) -> None:
    curve = (EpochPoint(1, 0.9, 50.0, 1.0, 200.0), EpochPoint(2, 0.95, 50.0, 1.0, 200.0))
    for _ in range(4):
        told = Outcome(ending=Ending.CONVERGED, joules=100.0, seconds=2.0, epochs=2, metric=0.95, curve=curve)
        job.tell(job.ask(HERE).number, told)
    jobs, name = job.jobs, job.spec.id
    whole, part = jobs.full(name), jobs.full(name, Excerpt(tries=2, history=3, curves=False))
    assert [len(one["curve"]) for one in whole["tries"]] == [2] * 4
    assert part["tries"] == [{**one, "curve": []} for one in whole["tries"][2:]]
    assert part["history"] == whole["history"][1:] and part["costs"] == whole["costs"][1:]
    short = ("tries", "history", "costs")
    assert {key: part[key] for key in part if key not in short} == {
        key: whole[key] for key in whole if key not in short
    }
    trials = [{**one, "curve": []} for one in whole["tries"]]
    assert (
        jobs.trials(name) == trials and jobs.trials(name, newest=3) == trials[1:] and jobs.trials(name, newest=0) == []
    )
