"""A snapshot saves work and changes nothing: with or without it, a policy is in the same state."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.laws import examples
from zeus.client.local import LocalJobs
from zeus.client.policy_states import SNAPSHOT_EVERY, PolicyStateCache, read_snapshot, take_snapshot
from zeus.errors import StoreError
from zeus.job import Ending, Gpus, JobSpec, Outcome, replace
from zeus.policy.registry import POLICIES
from zeus.store import MemoryStore, Store
from zeus.store.api import START, Log, LogPoint, Snapshot

ENDINGS = (Ending.CONVERGED, Ending.CONVERGED, Ending.NOT_CONVERGED, Ending.CRASHED, Ending.STOPPED, Ending.LOST)
GPUS = (Gpus("V100", 1, 250.0), Gpus("A40", 2, 600.0))


def spec(policy: str = "structured", window: int = 0) -> JobSpec:
    sizes = (8, 16, 32, 64)
    return JobSpec(
        job_id_prefix="asr",
        job_id="asr",
        batch_sizes=sizes,
        default_batch_size=16,
        policy=policy,
        window_size=window,
        mab_seed=3,
    )


def outcome(rng: random.Random) -> Outcome:
    epochs = rng.randint(1, 9)
    use = {"joules": rng.uniform(50.0, 900.0) * epochs, "seconds": 2.0 * epochs, "epochs": epochs}
    ending = rng.choice(ENDINGS)
    return Outcome(ending=ending, **({} if ending is Ending.CRASHED else use))


def live(store: Store, policy: str, window: int, seed: int, recurrences: int) -> None:
    """A job with trials that end in every way, some of which never do."""
    rng, jobs = random.Random(seed), LocalJobs(store)
    store.register(spec(policy, window))
    for _ in range(recurrences):
        gpus = rng.choice(GPUS)
        try:
            trial, _ = jobs.ask("asr", gpus)
        except ValueError:  # all sizes crashed
            store.pardon("asr", rng.choice(spec().batch_sizes))
            continue
        if rng.random() < 0.2:
            store.profiled("asr", trial.batch_size, gpus, joules=rng.uniform(50.0, 900.0), seconds=2.0)
        if rng.random() < 0.9:
            store.tell("asr", trial.number, outcome(rng))


class Counting(MemoryStore):
    """Remembers from which points its events were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = list[LogPoint]()

    def log(self, job_id: str, since: LogPoint = START) -> Log:
        found = super().log(job_id, since)
        self.read.append(found.begin)
        return found


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=examples(10))
@given(window=st.sampled_from([0, 3]), seed=st.integers(0, 10**6), at=st.integers(1, 40))
def test_a_state_that_continues_from_a_snapshot_is_the_one_folded_from_the_start(
    policy: tuple[str, int], window: int, seed: int, at: int
) -> None:
    store = MemoryStore()
    live(store, policy[0], window, seed, 25)
    job, events = store.job("asr"), store.log("asr").events
    state = start = POLICIES[policy].start(job.spec)
    for event in events[:at]:
        state = POLICIES[policy].observe(state, event)
    again = read_snapshot(take_snapshot(job, LogPoint(at, "m"), state), job, start)
    assert again == state
    for event in events[at:]:
        state, again = POLICIES[policy].observe(state, event), POLICIES[policy].observe(again, event)
    assert again == state


def test_a_process_that_does_not_know_a_job_reads_only_what_came_after_its_snapshot() -> None:
    store = Counting()
    live(store, "structured", 0, 1, SNAPSHOT_EVERY)
    taken = store.snapshot("asr")
    assert taken is not None
    store.read.clear()
    job = store.job("asr")
    assert PolicyStateCache().state_in(store, job) == PolicyStateCache().state(
        job, lambda since: store.log("asr", since)
    )
    assert store.read == [taken.point, START]
    assert store.log("asr").end.sequence - taken.point.sequence < 2 * SNAPSHOT_EVERY


def test_a_snapshot_that_is_damaged_or_of_another_past_is_not_used() -> None:
    store = Counting()
    live(store, "structured", 0, 1, SNAPSHOT_EVERY)
    job, taken = store.job("asr"), store.snapshot("asr")
    assert taken is not None
    right = PolicyStateCache().state(job, lambda since: store.log("asr", since))
    another = take_snapshot(replace(job, generation="another"), taken.point, right)
    for wrong in (
        taken._replace(state=taken.state[:-1] + bytes([taken.state[-1] ^ 1])),
        taken._replace(state=b""),
        taken._replace(stamp=""),
        taken._replace(point=LogPoint(taken.point.sequence, "unknown")),
        taken._replace(point=LogPoint(10**6, taken.point.mark)),
        another,
    ):
        store.keep_snapshot("asr", wrong)
        assert PolicyStateCache().state_in(store, job) == right
        assert store.read[-1] == START


def test_a_job_that_was_revised_is_folded_again_from_its_start() -> None:
    store = Counting()
    live(store, "structured", 0, 1, SNAPSHOT_EVERY)
    job = store.register(replace(spec(), eta_knob=0.9))
    PolicyStateCache().state_in(store, job)
    assert store.read[-1] == START


def test_a_store_that_cannot_be_written_does_without_snapshots() -> None:
    class ReadOnly(MemoryStore):
        def keep_snapshot(self, job_id: str, snapshot: Snapshot) -> None:
            raise StoreError("the disk is full.")

    store = ReadOnly()
    live(store, "structured", 0, 1, SNAPSHOT_EVERY)
    assert store.snapshot("asr") is None
