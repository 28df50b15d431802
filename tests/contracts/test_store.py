"""What every store promises (zeus.store.api), on every store there is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from store_worker import CONVERGED, first_size
from zeus.device.clock import VirtualClock
from zeus.errors import InputError
from zeus.job import Ask, Decision, Ending, JobSpec, Outcome, Profiled, Trial, history
from zeus.optimizer.batch_size.policy import find_policy, fold
from zeus.profile import PowerProfile, ProfileKey, Slice
from zeus.store import Job, MemoryStore, Request, Store, StoreProfiles, open_store
from zeus.store.api import Facts

SPEC = JobSpec(job_id="asr", job_id_prefix="asr", batch_sizes=(8, 16, 32), default_batch_size=16)
HERE = Request(max_watts=250.0, gpu_model="V100")
STOPPED = Outcome(ending=Ending.STOPPED, joules=10.0, seconds=1.0, epochs=1)
SO_FAR = Outcome(ending=Ending.LOST, joules=40.0, seconds=3.0, epochs=2)
KEY = ProfileKey("asr", 16, "V100", 4)
PROFILE = PowerProfile.of([Slice(250.0, 10, 1.0, 200.0), Slice(150.0, 10, 1.2, 150.0)], limits=[250, 150, 100])


@dataclass
class Place:
    """Where stores lie: `open` gives the same one each time, as another process would, `another` an empty one."""

    make: Callable[[str, VirtualClock], Store]
    url: str | None = None  # by which other processes reach the first; None: they cannot
    clock: VirtualClock = field(default_factory=VirtualClock)
    opened: list[Store] = field(default_factory=list)

    def open(self, name: str = "zeus") -> Store:
        self.opened.append(self.make(name, self.clock))
        return self.opened[-1]

    def another(self) -> Store:
        return self.open("another")

    def close(self) -> None:
        for store in self.opened:
            store.close()


def memory(tmp_path: Path) -> Place:
    kept: dict[str, Store] = {}
    return Place(lambda name, clock: kept.setdefault(name, MemoryStore(clock.wall)))


def sqlite(tmp_path: Path) -> Place:
    def url(name: str) -> str:
        return f"sqlite:///{tmp_path}/a b/{name}.db"

    return Place(lambda name, clock: open_store(url(name), wall=clock.wall), url("zeus"))


STORES = {"memory": memory, "sqlite": sqlite}  # a new kind of store is added here and nowhere else
REACHABLE = {name: make for name, make in STORES.items() if name != "memory"}


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = STORES[request.param](tmp_path)
    yield place
    place.close()


@pytest.fixture(params=REACHABLE)
def reachable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = REACHABLE[request.param](tmp_path)
    yield place
    place.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


def ask(store: Store, recurrence: int | None = None) -> Trial:
    return store.ask("asr", replace(HERE, recurrence=recurrence), first_size)


def refuse(job: Job, ask: Ask, facts: Facts) -> Decision:
    raise InputError("nothing is left to offer")


def sound(store: Store, job_id: str = "asr") -> None:
    """Numbers are 1, 2, 3, ...; each decision saw exactly what came before it."""
    trials = [kept.trial for kept in store.trials(job_id)]
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
    events = store.facts(job_id)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert all(trial.decision.reason == str(trial.asked - 1) for trial in trials)


# ---------------------------------------------------------------------- jobs


def test_a_job_is_found_again_with_the_seed_that_was_drawn_for_it(place: Place) -> None:
    job = place.open().register(SPEC)
    assert job.spec.mab_seed is not None
    assert place.open().register(SPEC) == job == place.open().job("asr")
    assert place.open().jobs() == [job]


def test_a_job_without_an_id_is_found_by_what_it_is(store: Store) -> None:
    nameless = replace(SPEC, job_id=None)
    assert store.register(nameless) == store.register(nameless) == store.job(nameless.id)


def test_a_job_whose_knobs_changed_is_revised_and_goes_on(store: Store) -> None:
    first = store.register(SPEC)
    ask(store)
    second = store.register(replace(SPEC, eta_knob=0.9, batch_sizes=(16, 32)))
    assert (second.revision, second.since, second.spec.mab_seed) == (2, 0, first.spec.mab_seed)
    assert store.revisions("asr") == [first, second]
    assert ask(store).number == 2


def test_trials_for_another_target_are_marked(store: Store) -> None:
    store.register(SPEC)
    ask(store)
    assert store.register(replace(SPEC, target_metric=0.9)).since == 1
    assert store.register(replace(SPEC, target_metric=0.9, eta_knob=0.1)).since == 1


def test_a_job_keeps_its_policy_version_until_it_takes_another_policy(store: Store) -> None:
    store.register(SPEC, policy_version=1)
    assert store.register(replace(SPEC, eta_knob=0.2), policy_version=2).policy_version == 1
    assert store.register(replace(SPEC, policy="default"), policy_version=2).policy_version == 2


def test_what_is_not_there_is_said_with_what_is(store: Store) -> None:
    with pytest.raises(InputError, match="job 'asr' is not in this store; it has: none yet"):
        ask(store)
    store.register(SPEC)
    with pytest.raises(InputError, match="it has: asr"):
        store.facts("lm")
    for verb in (lambda: store.tell("asr", 1, CONVERGED), lambda: store.renew("asr", 0)):
        with pytest.raises(InputError, match="has no trial"):
            verb()


def test_a_forgotten_job_is_gone_and_its_next_life_is_another(store: Store) -> None:
    first = store.register(SPEC)
    ask(store)
    store.pardon("asr", 8)
    store.put_profile(KEY, PROFILE)
    store.forget("asr")
    assert store.jobs() == []
    assert store.get_profile(KEY) is None
    again = store.register(SPEC)
    assert again.generation != first.generation
    assert (store.facts("asr"), ask(store).number) == ([], 1)
    with pytest.raises(InputError):
        store.forget("lm")


# ---------------------------------------------------------------------- asking and telling


def test_asks_and_tells_share_one_row_of_sequence_numbers(place: Place) -> None:
    place.open().register(SPEC)
    first, second = ask(place.open()), ask(place.open())
    ended = place.open().tell("asr", first.number, CONVERGED)
    assert (first.asked, second.asked, ended.ended) == (1, 2, 3)
    assert (first.ask.recurrence, second.ask.recurrence) == (1, 2)
    assert place.open().facts("asr") == [first, second, ended]
    assert place.open().facts("asr", since=2) == [ended]
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
    for strange in (3, 4, 0, -1):
        with pytest.raises(InputError, match="was never begun"):
            ask(store, recurrence=strange)
    sound(store)


def test_a_decision_that_fails_opens_nothing(store: Store) -> None:
    store.register(SPEC)
    with pytest.raises(InputError, match="nothing is left to offer"):
        store.ask("asr", HERE, refuse)
    assert store.facts("asr") == []
    assert ask(store).number == 1


def test_a_tell_that_is_repeated_changes_nothing(store: Store) -> None:
    store.register(SPEC)
    number = ask(store).number
    ended = store.tell("asr", number, CONVERGED)
    assert store.tell("asr", number, CONVERGED) == ended
    with pytest.raises(InputError, match="The first one stands"):
        store.tell("asr", number, STOPPED)
    assert store.tell("asr", number, SO_FAR) == ended
    assert len(store.facts("asr")) == 2


def test_the_real_policy_folds_what_is_kept_step_by_step_as_from_the_start(store: Store) -> None:
    job = store.register(SPEC)
    policy = find_policy(job.spec.policy, job.policy_version)
    state, seen = policy.start(job.spec), 0
    for outcome in (CONVERGED, STOPPED, CONVERGED):
        store.tell("asr", ask(store).number, outcome)
        for event in store.facts("asr", seen):
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
    assert store.facts("asr") == history([late, other])
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
    profiled = store.profiled("asr", 8, "V100", 12.5)
    pardoned = store.pardon("asr", 8)
    assert profiled == Profiled(sequence=2, batch_size=8, gpu_model="V100", epoch_cost=12.5)
    assert store.facts("asr") == [trial, profiled, pardoned]
    assert store.facts("asr", since=2) == [pardoned]


def test_a_profile_is_kept_under_exactly_its_key(place: Place) -> None:
    profiles = StoreProfiles(place.open())
    assert profiles.get(KEY) is None
    profiles.put(KEY, PowerProfile.of([Slice(250, 1, 1.0, 1.0)]))
    profiles.put(KEY, PROFILE)
    assert place.open().get_profile(KEY) == PROFILE
    for other in (
        replace(KEY, job=""),
        replace(KEY, batch_size=8),
        replace(KEY, gpu_model="A40"),
        replace(KEY, gpu_count=1),
    ):
        assert profiles.get(other) is None


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
    store.profiled("asr", 8, "V100", 12.5)
    store.pardon("asr", 8)
    store.register(replace(SPEC, target_metric=0.7))
    store.put_profile(KEY, PROFILE)
    store.put_profile(replace(KEY, job=""), PROFILE)
    return store


def test_export_then_import_is_the_identity(place: Place) -> None:
    store, another = full(place), place.another()
    assert another.import_lines(store.export()) == ["asr", "lm"]
    assert another.export() == store.export()
    assert another.facts("asr") == store.facts("asr")
    assert another.trials("asr") == store.trials("asr")
    assert another.get_profile(KEY) == PROFILE
    assert another.job("asr").generation != store.job("asr").generation
    assert ask(another) == ask(store)


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
    newer["trial"]["version"] = 2
    with pytest.raises(InputError, match=f"line {trial + 1}: trial of version 2"):
        another.import_lines([*lines[:trial], json.dumps(newer)])
    assert another.export() == before


# ---------------------------------------------------------------------- many at once


def test_threads_lose_and_double_no_trial(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                store.tell("asr", ask(store).number, CONVERGED)
        except BaseException as wrong:
            failed.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert [kept.trial.ending for kept in store.trials("asr")] == [Ending.CONVERGED] * 40
    sound(store)


def start(place: Place, times: int) -> subprocess.Popen[str]:
    worker = Path(__file__).parent.parent / "store_worker.py"
    assert place.url is not None
    return subprocess.Popen(
        [sys.executable, str(worker), place.url, "asr", str(times)], stdout=subprocess.PIPE, text=True
    )


def test_processes_that_open_a_new_store_at_once_all_find_it_whole(reachable: Place) -> None:
    assert reachable.url is not None
    code = "import sys; from zeus.store import open_store; print(open_store(sys.argv[1]).jobs())"
    crowd = [
        subprocess.Popen([sys.executable, "-c", code, reachable.url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [one.communicate(timeout=60)[0] for one in crowd] == ["[]\n"] * 3


def test_processes_lose_and_double_no_trial(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    crowd = [start(reachable, 10) for _ in range(3)]
    said = [one.communicate(timeout=60)[0].split("\n") for one in crowd]
    assert [one.returncode for one in crowd] == [0, 0, 0]
    asked = sorted(int(line.split()[1]) for lines in said for line in lines if line.startswith("asked"))
    assert asked == list(range(1, 31))
    assert {kept.trial.ending for kept in store.trials("asr")} == {Ending.CONVERGED}
    sound(store)


def test_killed_processes_leave_a_store_that_works_at_once_and_all_they_said_was_done(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    crowd = [start(reachable, 10_000) for _ in range(3)]
    said: list[str] = []
    for one in crowd:
        assert one.stdout is not None
        said += [one.stdout.readline() for _ in range(5)]
        one.kill()
        said += [line for line in one.stdout.read().split("\n") if line.count(" ") == 1]
        one.wait(60)
        one.stdout.close()
        assert ask(store).ending is Ending.OPEN
    endings = {kept.trial.number: kept.trial.ending for kept in store.trials("asr")}
    for verb, number in (line.split() for line in said if line.strip()):
        assert endings[int(number)] is (Ending.CONVERGED if verb == "told" else endings[int(number)])
    assert len(endings) - sum(ending is Ending.CONVERGED for ending in endings.values()) <= 6
    sound(store)
