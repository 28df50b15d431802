"""What every store promises (zeus.store.api), on every store there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import pytest

from support.store_places import HERE, SPEC, Place, ask, sound
from support.store_worker import CONVERGED, first_size
from support.stories import fold
from zeus.errors import AlreadyDone, InputError, NotKnown
from zeus.job import Ask, Decision, Ending, Gpus, Outcome, Phase, Profiled, Target, Trial, history, replace
from zeus.policy.registry import find_policy
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store import Job, MemoryStore, Request, Store
from zeus.store.api import Digest, Facts, LogPoint, Snapshot, TrialFilter
from zeus.store.tokens import Scope, Token

EPOCH = {"joules": 12.5, "seconds": 0.5}
V100, A40S = Gpus("V100", 1, 250.0), Gpus("A40", 2, 600.0)

STOPPED = Outcome(ending=Ending.STOPPED, joules=10.0, seconds=1.0, epochs=1)
SO_FAR = Outcome(ending=Ending.LOST, joules=40.0, seconds=3.0, epochs=2)
KEY = ProfileKey("asr", 16, "V100", 4)
PROFILE = PowerProfile.of(
    [LimitSlice(250.0, 10, 1.0, 200.0), LimitSlice(150.0, 10, 1.2, 150.0)], limits=[250, 150, 100]
)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def decided(decision: Decision, job: Job, ask: Ask, facts: Facts) -> Decision:
    return decision


def refuse(job: Job, ask: Ask, facts: Facts) -> Decision:
    raise InputError("nothing is left to offer")


# ---------------------------------------------------------------------- jobs


def test_a_job_is_found_again_with_the_seed_that_was_drawn_for_it(place: Place) -> None:
    job = place.open().register(SPEC)
    assert job.spec.mab_seed is not None
    assert place.open().register(SPEC) == job == place.open().job("asr")
    assert place.open().job("asr") == job


def test_a_job_without_an_id_is_found_by_what_it_is(store: Store) -> None:
    nameless = replace(SPEC, job_id=None)
    assert store.register(nameless) == store.register(nameless) == store.job(nameless.id)


def test_a_job_whose_knobs_changed_is_revised_and_goes_on(store: Store) -> None:
    first = store.register(SPEC)
    ask(store)
    second = store.register(replace(SPEC, eta_knob=0.9, batch_sizes=(16, 32)))
    assert (second.revision, second.spec.mab_seed) == (2, first.spec.mab_seed)
    assert store.job("asr") == second
    assert [json.loads(line)["revision"] for line in store.export(["asr"])[:2]] == [1, 2]
    assert ask(store).number == 2


def test_a_trial_says_the_target_that_it_was_asked_for(store: Store) -> None:
    store.register(SPEC)
    first = ask(store)
    store.register(replace(SPEC, target_metric=0.9, higher_is_better_metric=False), void=True)
    second = ask(store)
    assert [one.ask.target for one in (first, second)] == [Target(0.5), Target(0.9, higher_is_better=False)]
    assert [one.ask.is_for(store.job("asr").spec) for one in (first, second)] == [False, True]


def test_trials_count_for_another_target_only_if_that_is_asked_for(store: Store) -> None:
    store.register(replace(SPEC, target_metric=0.7))
    first = store.register(SPEC)  # nothing was tried for 0.7 yet
    store.tell("asr", ask(store).number, CONVERGED)
    typo = replace(SPEC, target_metric=5.0)
    for change in (
        lambda: store.register(typo),
        lambda: store.revise("asr", lambda job: (replace(job.spec, target_metric=5.0), 1)),
        lambda: store.register(replace(SPEC, higher_is_better_metric=False)),
    ):
        with pytest.raises(AlreadyDone, match=r">= 0\.5, and this is .* 1 trial does not count .*revise"):
            change()
    assert store.job("asr") == first
    assert store.register(typo, void=True).spec.target_metric == 5.0
    back = store.register(SPEC, void=True)
    assert [kept.trial.ask.is_for(back.spec) for kept in store.trials("asr")] == [True]


def test_what_a_job_counts_changes_only_if_that_is_asked_for(store: Store) -> None:
    both = replace(SPEC, include=("gpu", "cpu"))
    store.register(both)
    first = store.register(SPEC)  # no trial has counted anything yet
    store.tell("asr", ask(store).number, CONVERGED)
    for change in (
        lambda: store.register(both),
        lambda: store.revise("asr", lambda job: (replace(job.spec, include=("gpu", "cpu")), 1)),
    ):
        with pytest.raises(AlreadyDone, match=r"energy of GPU, and this counts GPU and CPU.* 1 trial.*revise"):
            change()
    assert store.job("asr") == first
    assert store.register(both, void=True).spec.include == ("gpu", "cpu")
    assert place_of(store).include == ("gpu",), "what a trial counted is a fact of the trial"


def test_a_trial_is_opened_only_for_who_counts_what_the_job_counts(store: Store) -> None:
    store.register(replace(SPEC, include=("gpu", "cpu")))
    with pytest.raises(InputError, match="counts the energy of GPU and CPU, but this client counts GPU"):
        ask(store)
    assert store.count("asr") == 0
    opened = store.ask("asr", replace(HERE, gpus=replace(HERE.gpus, include=("gpu", "cpu"))), first_size)
    store.profiled("asr", 16, opened.ask.gpus, joules=5.0, seconds=1.0)
    assert place_of(store).label == f"{HERE.gpus.label} + CPU"
    assert [note.gpu_model for note in store.notes("asr") if isinstance(note, Profiled)] == [place_of(store).label]


def place_of(store: Store) -> Gpus:
    return store.trials("asr")[-1].trial.ask.gpus


def test_a_job_keeps_its_policy_version_until_it_takes_another_policy(store: Store) -> None:
    store.register(SPEC, policy_version=1)
    assert store.register(replace(SPEC, eta_knob=0.2), policy_version=2).policy_version == 1
    assert store.register(replace(SPEC, policy="default"), policy_version=2).policy_version == 2


def test_what_is_not_there_is_said_with_what_is(store: Store) -> None:
    with pytest.raises(InputError, match=r"job 'asr' is not in this store\. It has no jobs yet"):
        ask(store)
    store.register(SPEC)
    with pytest.raises(InputError, match="Known: asr"):
        store.log("lm")
    for verb in (
        lambda: store.tell("asr", 1, CONVERGED),
        lambda: store.renew("asr", 0),
        lambda: store.trial("asr", 2**70),
    ):
        with pytest.raises(InputError, match="has no trial"):
            verb()


def test_crashes_that_are_excused_are_kept_and_those_after_them_count(store: Store, place: Place) -> None:
    crashed = Outcome(ending=Ending.CRASHED)
    first = store.register(SPEC)
    store.tell("asr", ask(store).number, crashed)
    job = store.excuse("asr", [1])
    assert job == store.job("asr") == store.excuse("asr", [1])
    assert (job.excused, job.revision, job.spec) == ((1,), 2, first.spec)
    assert [kept.trial.ending for kept in store.trials("asr")] == [Ending.CRASHED]
    store.tell("asr", ask(store).number, crashed)
    assert store.job("asr").excused == (1,)
    another = place.another()
    another.import_lines(store.export())
    assert replace(another.job("asr"), generation="") == replace(job, generation="")
    with pytest.raises(NotKnown, match="'lm' is not in this store"):
        store.excuse("lm", [1])
    with pytest.raises(NotKnown, match="has no trial 3"):
        store.excuse("asr", [1, 3])


def test_changes_made_at_once_are_all_made(place: Place) -> None:
    place.open().register(SPEC)

    def change(_: int) -> None:
        place.open().revise("asr", lambda job: (replace(job.spec, max_epochs=job.spec.max_epochs + 1), 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(12)))
    job = place.open().job("asr")
    assert (job.spec.max_epochs, job.revision) == (SPEC.max_epochs + 12, 13)


def test_a_change_is_a_revision_like_any_other_and_one_that_fails_is_none(store: Store) -> None:
    first = store.register(SPEC)
    ask(store)
    assert store.revise("asr", lambda job: (job.spec, 7)) == first
    moved = store.revise("asr", lambda job: (replace(job.spec, beta_knob=3.0, policy="default"), 7))
    assert (moved.revision, moved.spec.beta_knob, moved.policy_version) == (2, 3.0, 7)
    with pytest.raises(InputError, match="eta_knob"):
        store.revise("asr", lambda job: (replace(job.spec, eta_knob=7.0), 1))
    assert store.job("asr") == moved
    with pytest.raises(NotKnown, match="'lm' is not in this store"):
        store.revise("lm", lambda job: (job.spec, 1))


def test_an_unfinished_recurrence_is_resumed_by_one_alone(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    store.tell("asr", ask(store).number, Outcome(ending=Ending.NOT_CONVERGED, joules=1.0, seconds=1.0, epochs=1))

    def resume(_: int) -> Ask:
        return place.open().ask("asr", replace(HERE, resume=True), first_size).ask

    with ThreadPoolExecutor(4) as pool:
        asks = list(pool.map(resume, range(8)))
    assert sorted((one.recurrence, one.attempt) for one in asks) == [(1, 2), *((n, 1) for n in range(2, 9))]
    with pytest.raises(InputError, match="not both"):
        replace(HERE, resume=True, recurrence=1)


def test_a_trial_says_the_eta_and_the_gpus_it_was_asked_for_wherever_the_job_goes(store: Store, place: Place) -> None:
    store.register(SPEC)
    first = ask(store)
    store.register(replace(SPEC, eta_knob=0.9))
    second = store.ask("asr", replace(HERE, gpus=A40S), first_size)
    store.register(replace(SPEC, eta_knob=0.1))
    another = place.another()
    another.import_lines(store.export())
    for here in (store, another):
        kept = [here.trial("asr", one.number).trial.ask for one in (first, second)]
        assert [(one.eta, one.gpus) for one in kept] == [(SPEC.eta_knob, HERE.gpus), (0.9, A40S)]


def test_a_restarted_job_is_registered_as_it_was_and_knows_nothing(store: Store) -> None:
    store.register(SPEC, policy_version=1)
    first = store.register(replace(SPEC, eta_knob=0.9, target_metric=0.7))
    ask(store)
    store.pardon("asr", 8)
    store.put_profile(KEY, PROFILE)
    store.set_client_gpus("asr", V100)
    again = store.restart("asr", policy_version=2)
    assert again == store.job("asr") and again.revision == 1
    assert (again.spec, again.policy_version, again.revision) == (first.spec, 2, 1)
    assert again.generation != first.generation
    assert (store.log("asr").events, store.trials("asr"), store.notes("asr"), store.client_gpus("asr")) == (
        [],
        [],
        [],
        None,
    )
    assert store.get_profile(KEY) is None
    assert again.first == ask(store).number == 2  # no number is given twice
    sound(store)
    with pytest.raises(NotKnown, match="'lm' is not in this store"):
        store.restart("lm")


def test_a_job_that_has_changed_since_it_was_looked_at_is_not_restarted(store: Store) -> None:
    store.register(SPEC)
    seen = store.pulse()["asr"]
    ask(store)
    with pytest.raises(AlreadyDone, match="has changed since"):
        store.restart("asr", pulse=seen)
    assert len(store.trials("asr")) == 1
    store.restart("asr", pulse=store.pulse()["asr"])
    assert store.trials("asr") == []


def test_a_forgotten_job_is_gone_and_its_next_life_is_another(store: Store) -> None:
    first = store.register(SPEC)
    ask(store)
    store.pardon("asr", 8)
    store.put_profile(KEY, PROFILE)
    store.forget("asr")
    assert store.names().page == []
    assert store.get_profile(KEY) is None
    again = store.register(SPEC)
    assert again.generation != first.generation
    assert (again.first, store.log("asr").events, ask(store).number) == (2, [], 2)
    with pytest.raises(InputError):
        store.forget("lm")


# ---------------------------------------------------------------------- asking and telling


def test_asks_and_tells_share_one_row_of_sequence_numbers(place: Place) -> None:
    place.open().register(SPEC)
    first, second = ask(place.open()), ask(place.open())
    ended = place.open().tell("asr", first.number, CONVERGED)
    assert (first.asked, second.asked, ended.ended) == (1, 2, 3)
    assert (first.ask.recurrence, second.ask.recurrence) == (1, 2)
    assert place.open().log("asr").events == [first, second, ended]
    assert place.open().log("asr").events[2:] == [ended]
    sound(place.open())


def test_another_try_belongs_to_its_recurrence_and_the_last_one_is_said_to_be(store: Store) -> None:
    store.register(SPEC)
    tries = [ask(store)]
    store.tell("asr", tries[0].number, STOPPED)
    other = ask(store)
    tries.append(store.ask("asr", replace(HERE, recurrence=1, max_tries=2), first_size))
    assert [(t.ask.recurrence, t.ask.attempt, t.ask.last) for t in tries] == [(1, 1, False), (1, 2, True)]
    assert other.ask.recurrence == 2
    with pytest.raises(InputError, match="used up its 2 tries"):
        store.ask("asr", replace(HERE, recurrence=1, max_tries=2), first_size)
    store.tell("asr", other.number, CONVERGED)
    with pytest.raises(InputError, match="has reached its target"):
        ask(store, recurrence=2)
    for strange in (3, 4, 0, -1, 2**70):
        with pytest.raises(InputError, match="was never begun"):
            ask(store, recurrence=strange)
    sound(store)


def test_a_decision_that_fails_opens_nothing(store: Store) -> None:
    store.register(SPEC)
    with pytest.raises(InputError, match="nothing is left to offer"):
        store.ask("asr", HERE, refuse)
    assert store.log("asr").events == []
    assert ask(store).number == 1


def test_a_tell_that_is_repeated_changes_nothing(store: Store) -> None:
    store.register(SPEC)
    number = ask(store).number
    ended = store.tell("asr", number, CONVERGED)
    assert store.tell("asr", number, CONVERGED) == ended
    with pytest.raises(InputError, match="it was not overwritten"):
        store.tell("asr", number, STOPPED)
    assert store.tell("asr", number, SO_FAR) == ended
    assert len(store.log("asr").events) == 2


def test_the_real_policy_folds_what_is_kept_step_by_step_as_from_the_start(store: Store) -> None:
    job = store.register(SPEC)
    policy = find_policy(job.spec.policy, job.policy_version)
    state, seen = policy.start(job.spec), 0
    for outcome in (CONVERGED, STOPPED, CONVERGED):
        store.tell("asr", ask(store).number, outcome)
        for event in store.log("asr").events[seen:]:
            state, seen = policy.observe(state, event), event.sequence
    assert state == fold(policy, job.spec, [kept.trial for kept in store.trials("asr")])


# ---------------------------------------------------------------------- leases


def test_a_trial_whose_lease_lapsed_is_lost_at_the_next_ask_and_no_sooner(place: Place, store: Store) -> None:
    store.register(SPEC)
    ask(store)
    place.clock.sleep(599)
    assert store.expire("asr") == []
    place.clock.sleep(1)
    assert ask(store).number == 2
    assert [kept.trial.ending for kept in store.trials("asr")] == [Ending.LOST, Ending.OPEN]
    sound(store)


def test_a_renewed_lease_holds_and_what_was_used_by_then_outlives_the_loss(place: Place, store: Store) -> None:
    store.register(SPEC)
    number = ask(store).number
    place.clock.sleep(500)
    assert store.renew("asr", number, SO_FAR).ending is Ending.OPEN
    place.clock.sleep(500)
    store.renew("asr", number)
    assert store.expire("asr") == []
    store.renew("asr", number, lease=86_400)
    place.clock.sleep(86_399)
    assert store.expire("asr") == []
    place.clock.sleep(1)
    (lost,) = store.expire("asr")
    assert (lost.ending, lost.outcome) == (Ending.LOST, SO_FAR)
    assert store.renew("asr", number) == lost
    assert store.expire("asr") == []
    with pytest.raises(InputError, match="ending LOST"):
        store.renew("asr", number, CONVERGED)


def test_a_lost_trial_may_still_tell(place: Place, store: Store) -> None:
    store.register(SPEC)
    number = ask(store).number
    store.renew("asr", number, SO_FAR)
    place.clock.sleep(601)
    store.expire("asr")
    other = ask(store)
    late = store.tell("asr", number, CONVERGED)
    assert (late.asked, late.lost, late.ended, late.outcome) == (1, 2, 4, CONVERGED)
    assert store.log("asr").events == history([late, other])
    sound(store)


def test_a_trial_can_be_given_up_before_its_lease_lapses(store: Store) -> None:
    store.register(SPEC)
    number = ask(store).number
    given_up = store.tell("asr", number, SO_FAR)
    assert (given_up.ending, given_up.lost) == (Ending.LOST, 2)
    assert store.tell("asr", number, SO_FAR) == given_up
    assert store.expire("asr") == []


def test_times_are_utc_and_iso_8601(place: Place, store: Store) -> None:
    store.register(SPEC)
    ask(store)
    (kept,) = store.trials("asr")
    assert (kept.asked_at, kept.leased_until) == (
        "2023-11-14T22:13:20.000000+00:00",
        "2023-11-14T22:23:20.000000+00:00",
    )


# ---------------------------------------------------------------------- other facts


def test_profiled_costs_and_pardons_are_events_like_others(store: Store) -> None:
    store.register(SPEC)
    trial = ask(store)
    profiled = store.profiled("asr", 8, HERE.gpus, **EPOCH)
    pardoned = store.pardon("asr", 8)
    assert profiled == Profiled(sequence=2, batch_size=8, gpu_model="V100", max_watts=250.0, **EPOCH)
    assert store.log("asr").events == [trial, profiled, pardoned]
    assert store.log("asr").events[2:] == [pardoned]
    assert store.notes("asr") == [profiled, pardoned]


def test_a_profile_is_kept_under_exactly_its_key(place: Place) -> None:
    store = place.open()
    assert store.get_profile(KEY) is None
    store.put_profile(KEY, PowerProfile.of([LimitSlice(250, 1, 1.0, 1.0)]))
    store.put_profile(KEY, PROFILE)
    assert place.open().get_profile(KEY) == PROFILE
    for other in (
        replace(KEY, job=""),
        replace(KEY, batch_size=8),
        replace(KEY, gpu_model="A40"),
        replace(KEY, gpu_count=1),
    ):
        assert store.get_profile(other) is None


# ---------------------------------------------------------------------- export and import


def full(place: Place) -> Store:
    store = place.open()
    store.register(SPEC)
    store.register(replace(SPEC, job_id="lm"))
    lost, _ = ask(store), ask(store)
    store.renew("asr", lost.number, SO_FAR)
    place.clock.sleep(601)
    store.expire("asr")
    store.tell("asr", ask(store).number, CONVERGED)
    store.tell("asr", lost.number, STOPPED)
    store.renew("asr", ask(store).number, SO_FAR)
    store.profiled("asr", 8, HERE.gpus, **EPOCH)
    store.pardon("asr", 8)
    store.register(replace(SPEC, target_metric=0.7), void=True)
    store.put_profile(KEY, PROFILE)
    store.put_profile(replace(KEY, job=""), PROFILE)
    return store


def nameless(trial: Trial) -> Trial:
    """A trial, but for what no other trial has."""
    return replace(trial, ask=replace(trial.ask, id=""))


def test_export_then_import_is_the_identity(place: Place) -> None:
    store, another = full(place), place.another()
    assert another.import_lines(store.export()) == ["asr", "lm"]
    assert another.export() == store.export()
    assert another.log("asr").events == store.log("asr").events
    assert another.trials("asr") == store.trials("asr")
    assert another.get_profile(KEY) == PROFILE
    assert another.job("asr").generation != store.job("asr").generation
    assert nameless(ask(another)) == nameless(ask(store))


def test_all_stores_export_the_same_lines(place: Place) -> None:
    lines = full(place).export()
    other = MemoryStore(place.clock.wall)
    other.import_lines(lines)
    assert other.export() == lines


def test_some_jobs_can_be_exported_alone(place: Place) -> None:
    store, another = full(place), place.another()
    assert another.import_lines(store.export(["asr"])) == ["asr"]
    assert another.get_profile(replace(KEY, job="")) is None


def test_an_import_mixes_no_histories_and_happens_whole_or_not_at_all(place: Place) -> None:
    store, another = full(place), place.another()
    another.register(replace(SPEC, job_id="lm"))
    before = another.export()
    with pytest.raises(InputError, match="already in this store: lm"):
        another.import_lines(store.export())
    lines = store.export(["asr"])
    trial = next(place for place, line in enumerate(lines) if '"line":"trial"' in line)
    for spoilt in (
        lines[1:],
        lines[:trial] + lines[trial + 1 :],
        [*lines, lines[trial]],
        [*lines, "{}"],
        [*lines, "x"],
    ):
        with pytest.raises(InputError, match=r"line \d|Export the whole job again"):
            another.import_lines(spoilt)
    newer = json.loads(lines[trial])
    newer["trial"]["version"] = 3
    with pytest.raises(InputError, match=f"line {trial + 1}: trial of version 3"):
        another.import_lines([*lines[:trial], json.dumps(newer)])
    assert another.export() == before


def test_a_new_recurrence_follows_the_last_one_although_some_are_missing(place: Place) -> None:
    """As in an import that was edited."""
    store = place.open()
    store.register(SPEC)
    ask(store), ask(store)
    lines = [json.loads(line) for line in store.export()]
    lines[-1]["trial"]["ask"]["recurrence"] = 4
    store.forget("asr")
    store.import_lines([json.dumps(line) for line in lines])
    assert [ask(store).ask.recurrence for _ in range(2)] == [5, 6]


BAD_NAMES = ("", ".", "..", "two\nlines", "a\u202eb", "x" * 5000, "\ud800")


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_a_name_that_a_service_could_not_show_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InputError, match="job_id="):
        store.register(replace(SPEC, job_id=name))
    store.register(SPEC)
    lines = [json.loads(line) for line in store.export()]
    lines[0]["spec"]["job_id"] = name
    with pytest.raises(InputError, match=r"line 1: (job_id=|.* is not JSON: .* surrogate)"):
        store.import_lines([json.dumps(line) for line in lines])
    with pytest.raises(InputError):
        store.job(name)
    assert store.names().page == ["asr"]


def test_one_trial_can_be_looked_at_alone(store: Store) -> None:
    store.register(SPEC)
    trial = ask(store)
    assert store.trial("asr", trial.number) == store.trials("asr")[0]
    with pytest.raises(InputError, match="99"):
        store.trial("asr", 99)


def test_a_page_of_trials_is_as_all_of_them_would_be_cut(store: Store) -> None:
    store.register(SPEC)
    assert (store.count("asr"), store.trials("asr")) == (0, [])
    for _ in range(5):
        ask(store)
    everything = store.trials("asr")
    assert store.count("asr") == len(everything) == 5
    for after, most in ((0, 2), (1, 3), (4, 10), (5, 1), (2**60, 3), (2, None)):
        assert store.trials("asr", after=after, most=most) == everything[after : None if most is None else after + most]
    with pytest.raises(NotKnown):
        store.count("lm")


def test_the_trials_that_run_are_found_alone(store: Store) -> None:
    store.register(SPEC)
    for _ in range(5):
        ask(store)
    store.tell("asr", 2, CONVERGED)
    store.tell("asr", 4, SO_FAR)
    store.renew("asr", 5, SO_FAR)
    assert [kept.trial.number for kept in store.trials("asr", running=True)] == [1, 3, 5]
    assert store.trials("asr", after=1, most=1, running=True) == [store.trial("asr", 3)]
    store.tell("asr", 4, CONVERGED)
    assert store.trials("asr", after=2, running=True) == [store.trial("asr", 5)]


# ---------------------------------------------------------------------- for a service


def test_a_job_that_is_not_to_be_revised_stays_as_it_is(store: Store) -> None:
    first = store.register(SPEC, revise=False)
    assert store.register(SPEC, revise=False) == first
    with pytest.raises(AlreadyDone, match="job 'asr' is registered with another eta_knob, max_epochs"):
        store.register(replace(SPEC, eta_knob=0.9, max_epochs=7), revise=False)
    assert store.job("asr") == first


def test_an_ask_repeated_with_its_key_gets_the_same_trial_as_it_stands(place: Place) -> None:
    place.open().register(SPEC)
    first = place.open().ask("asr", HERE, first_size, key="k")
    assert place.open().ask("asr", HERE, first_size, key="k") == first
    ended = place.open().tell("asr", first.number, CONVERGED)
    assert place.open().ask("asr", HERE, first_size, key="k") == ended
    assert place.open().ask("asr", HERE, first_size, key="another").number == 2
    assert ask(place.open()).number == 3
    sound(place.open())


def test_a_key_is_a_jobs_own_and_goes_with_it(store: Store) -> None:
    store.register(SPEC)
    store.register(replace(SPEC, job_id="lm"))
    assert store.ask("asr", HERE, first_size, key="k").number == 1
    assert store.ask("lm", HERE, first_size, key="k").number == 1
    store.forget("asr")
    store.register(SPEC)
    assert store.ask("asr", HERE, first_size, key="k").asked == 1


def test_an_ask_that_failed_does_not_use_up_its_key(store: Store) -> None:
    store.register(SPEC)
    with pytest.raises(InputError):
        store.ask("asr", HERE, refuse, key="k")
    assert store.ask("asr", HERE, first_size, key="k").number == 1


def test_one_key_asked_by_many_at_once_opens_one_trial(store: Store) -> None:
    store.register(SPEC)
    with ThreadPoolExecutor(8) as crowd:
        trials = list(crowd.map(lambda _: store.ask("asr", HERE, first_size, key="k"), range(16)))
    assert {trial.number for trial in trials} == {1}
    assert len(store.log("asr").events) == 1


def test_the_pulse_of_a_job_changes_when_its_facts_or_terms_do_and_at_no_other_time(place: Place) -> None:
    store = place.open()
    assert store.pulse() == {}
    store.register(SPEC)
    store.register(replace(SPEC, job_id="lm"))
    changes = {
        "an ask": lambda: ask(store),
        "a tell": lambda: store.tell("asr", 1, CONVERGED),
        "an epoch": lambda: store.profiled("asr", 8, HERE.gpus, **EPOCH),
        "a pardon": lambda: store.pardon("asr", 8),
        "a revision": lambda: store.register(replace(SPEC, eta_knob=0.1)),
        "another life": lambda: (store.forget("asr"), store.register(SPEC)),
    }
    seen = [store.pulse()]
    for change in changes.values():
        change()
        seen.append(place.open().pulse())
    assert len({pulse["asr"] for pulse in seen}) == len(seen)
    assert len({pulse["lm"] for pulse in seen}) == 1
    number = ask(store).number
    before = store.pulse()
    store.renew("asr", number, SO_FAR)
    store.set_client_gpus("asr", V100)
    store.register(SPEC)
    assert store.expire("asr") == []
    assert store.pulse() == before
    place.clock.sleep(601)
    store.expire("asr")
    assert store.pulse() != before


def test_jobs_are_named_one_page_at_a_time(place: Place) -> None:
    store = place.open()
    names = [f"team/{number:03d}" for number in range(230)]
    for name in names:
        store.register(replace(SPEC, job_id=name))
    pages = [store.names(after=after, most=100) for after in (0, 100, 200, 300)]
    assert [name for page in pages for name in page.page] == names
    assert {page.total for page in pages} == {230}
    assert store.names("M/22", after=8, most=5) == (10, ["team/228", "team/229"])
    all_of_them = store.pulse()
    assert store.pulse(names[:130]) == {name: all_of_them[name] for name in names[:130]}
    assert (store.pulse([]), store.pulse(["lm"])) == ({}, {})


def test_a_name_that_is_mistyped_is_found_among_many(store: Store) -> None:
    for number in range(230):
        store.register(replace(SPEC, job_id=f"team/{number:03d}"))
    with pytest.raises(InputError, match=r"Did you mean .*'team/117'"):
        store.job("team/117x")


def digests(store: Store, *names: str) -> dict[str, Digest]:
    found = store.glances(names, hours=True)
    return {name: one.digest for name, one in found.items() if one.digest is not None}


def test_digests_are_kept_until_their_job_is_removed_and_never_exported(place: Place) -> None:
    store = place.open()
    for name in ("asr", "lm", "vision"):
        store.register(replace(SPEC, job_id=name))
    lines, one = store.export(), Digest("1", "[]", "{}", "[1]")
    store.keep_digests(dict.fromkeys(("asr", "lm", "vision"), one))
    store.keep_digests({"lm": one._replace(stamp="2")})
    store.forget("asr")
    store.restart("vision")
    assert digests(place.open(), "asr", "lm", "vision", "unknown") == {"lm": one._replace(stamp="2")}
    another = place.another()
    another.import_lines(lines)
    assert digests(another, "asr", "lm") == {}


def test_a_glance_has_the_pulse_the_digest_and_what_runs(store: Store) -> None:
    for name in ("asr", "lm"):
        store.register(replace(SPEC, job_id=name))
    store.tell("asr", ask(store).number, CONVERGED)
    numbers = [ask(store).number for _ in range(2)]
    store.renew("asr", numbers[1], SO_FAR)
    store.keep_digests({"lm": Digest("1", "[]", "{}", "[1]")})
    found = store.glances()
    assert {name: one.pulse for name, one in found.items()} == store.pulse()
    assert found["asr"].running == store.trials("asr", running=True) and len(found["asr"].running) == 2
    assert (found["asr"].digest, found["lm"].digest) == (None, Digest("1", "[]", "{}", ""))
    assert store.glances(["lm", "unknown"], briefs=False) == {
        "lm": found["lm"]._replace(digest=Digest("1", "[]", "", ""))
    }
    assert store.glances([]) == {}


def test_a_new_profile_makes_a_digest_invalid_although_the_pulse_stays(store: Store) -> None:
    store.register(SPEC)
    pulse = store.pulse()
    store.keep_digests({"asr": Digest("1", "[]")})
    store.put_profile(KEY, PROFILE)
    assert store.pulse() == pulse
    assert digests(store, "asr")["asr"].stamp != "1"


def test_a_snapshot_is_kept_until_its_job_is_removed_and_never_exported(place: Place) -> None:
    store = place.open()
    for name in ("asr", "lm", "vision"):
        store.register(replace(SPEC, job_id=name))
    lines, one = store.export(), Snapshot("1", LogPoint(7, "mark"), b"\x00\xff'")
    assert store.snapshot("asr") is None
    for name in ("asr", "lm", "vision"):
        store.keep_snapshot(name, one)
    store.keep_snapshot("lm", one._replace(stamp="2", state=b""))
    store.forget("asr")
    store.restart("vision")
    found = [place.open().snapshot(name) for name in ("asr", "lm", "vision")]
    assert found == [None, one._replace(stamp="2", state=b""), None]
    another = place.another()
    another.import_lines(lines)
    assert another.snapshot("lm") is None


def test_where_clients_run_is_settled_until_it_is_settled_otherwise(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    assert store.client_gpus("asr") is None
    store.set_client_gpus("asr", V100)
    store.set_client_gpus("asr", A40S)
    assert place.open().client_gpus("asr") == A40S
    store.forget("asr")
    store.register(SPEC)
    assert store.client_gpus("asr") is None
    for verb in (lambda: store.set_client_gpus("lm", V100), lambda: store.client_gpus("lm")):
        with pytest.raises(NotKnown):
            verb()


def test_the_profiles_of_a_job_are_those_of_no_other(store: Store) -> None:
    other = replace(KEY, batch_size=8)
    for key in (KEY, other, replace(KEY, job="lm")):
        store.put_profile(key, PROFILE)
    assert store.profiles("asr") == {KEY: PROFILE, other: PROFILE}
    assert store.profiles("nobody") == {}


def test_tokens_are_kept_in_order_and_revoked_for_good(place: Place) -> None:
    tokens = place.open().tokens
    first = Token("a1", "night shift", Scope.REPORT, "h1", "2024-01-01T00:00:00.000000+00:00")
    second = Token("b2", "owner", Scope.ADMIN, "h2", "2024-01-02T00:00:00.000000+00:00")
    tokens.add(first)
    tokens.add(second)
    assert place.open().tokens.all() == [first, second]
    assert (tokens.find("a1"), tokens.find("zz")) == (first, None)
    gone = place.open().tokens.revoke("a1", "2024-02-01T00:00:00.000000+00:00")
    assert gone == replace(first, revoked_at="2024-02-01T00:00:00.000000+00:00") == tokens.find("a1")
    assert tokens.revoke("a1", "2025-01-01T00:00:00.000000+00:00") == gone
    with pytest.raises(NotKnown, match="zeus token list"):
        tokens.revoke("zz", "2024-02-01T00:00:00.000000+00:00")


# ---------------------------------------------------------------------- late tells of an earlier life


def _reset(store: Store) -> None:
    store.restart("asr")


def _forget(store: Store) -> None:
    store.forget("asr")
    store.register(SPEC)


def _both(store: Store) -> None:
    _reset(store)
    ask(store)
    _forget(store)
    _reset(store)


@pytest.mark.parametrize("again", [_reset, _forget, _both])
@pytest.mark.parametrize("asked_again", [False, True])
def test_a_late_tell_of_an_earlier_life_is_not_known_and_changes_nothing(
    place: Place, again: Callable[[Store], None], asked_again: bool
) -> None:
    store = place.open()
    store.register(SPEC)
    old = [ask(store).number, ask(store).number]
    again(store)
    if asked_again:
        assert ask(store).number > old[-1]
    before, kept = store.export(), place.open().trials("asr")
    for number in old:
        for late in (CONVERGED, Outcome(ending=Ending.LOST), Outcome(ending=Ending.CRASHED)):
            with pytest.raises(NotKnown):
                place.open().tell("asr", number, late)
        for verb in (store.renew, store.trial):
            with pytest.raises(NotKnown):
                verb("asr", number)
    assert store.export() == before
    assert place.open().trials("asr") == kept


def test_numbers_go_on_when_a_life_is_carried_elsewhere(place: Place) -> None:
    store, elsewhere = place.open(), MemoryStore(place.clock.wall)
    store.register(SPEC)
    ask(store)
    _reset(store)
    assert ask(store).number == 2
    elsewhere.import_lines(store.export())
    numbers = [one.trial.number for one in elsewhere.trials("asr")]
    assert (numbers, elsewhere.job("asr").first, ask(elsewhere).number) == ([2], 2, 3)
    with pytest.raises(NotKnown):
        elsewhere.tell("asr", 1, CONVERGED)


def test_trials_are_found_by_how_they_ended_their_size_and_their_recurrence(store: Store) -> None:
    store.register(SPEC)
    for number in range(1, 13):
        again = None
        if number % 4 == 2:  # the one before missed
            again = store.trial("asr", number - 1).trial.ask.recurrence
        decision = Decision((8, 16, 32)[number % 3], Phase.SAMPLING, "any", None)
        trial = store.ask("asr", Request(gpus=V100, recurrence=again), partial(decided, decision))
        if number % 4 == 0:
            store.tell("asr", trial.number, CONVERGED)
        elif number % 4 == 1:
            store.tell("asr", trial.number, STOPPED)
        elif number % 4 == 2:
            store.tell("asr", trial.number, replace(SO_FAR, ending=Ending.CRASHED))
    every = store.trials("asr")
    endings, sizes = [None, *Ending], [None, 8, 16, 32, 64]
    for ending, size, recurrence in product(endings, sizes, [None, 1, 2, 99]):
        only = TrialFilter(ending, size, recurrence)
        wanted = [
            one
            for one in every
            if ending in (None, one.trial.ending)
            and size in (None, one.trial.batch_size)
            and recurrence in (None, one.trial.ask.recurrence)
        ]
        assert store.find_trials("asr", only, most=100) == (len(wanted), wanted)
        assert store.find_trials("asr", only, after=1, most=3, newest=True) == (len(wanted), wanted[::-1][1:4])
        assert store.find_trials("asr", only, after=1, most=3) == (len(wanted), wanted[1:4])
