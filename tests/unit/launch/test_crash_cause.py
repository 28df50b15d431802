"""A crash is held against its batch size, unless it is plainly the script's own: then against none."""

from __future__ import annotations

from functools import partial

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from support.store_places import SPEC
from zeus.client.local import LocalJobs
from zeus.client.policy_states import PolicyStateCache, as_of_now
from zeus.client.recurring import RecurringJob
from zeus.errors import LaunchError
from zeus.job import Ending, Gpus, Outcome, Trial, replace
from zeus.launch.crash_cause import _MEMORY, ENOUGH, Crash, is_scripts_own
from zeus.launch.recurrence import recur
from zeus.store import MemoryStore

HERE = Gpus("V100", 1, 250.0)
BUG = "ModuleNotFoundError: No module named 'torhc'"
CRASHES = st.lists(
    st.builds(Crash, st.sampled_from([8, 16, 32, 64]), st.integers(0, 1), st.just(1), st.sampled_from([BUG, "OOM"]))
)


@given(CRASHES, st.sets(st.sampled_from([8, 16])), st.booleans())
def test_a_crash_that_its_size_may_explain_clears_the_script(
    crashes: list[Crash], worked: set[int], left: bool
) -> None:
    if is_scripts_own(crashes, worked, nothing_left=left):
        assert all(one.epochs == 0 and one.log == BUG for one in crashes)
        assert not worked or {one.batch_size for one in crashes} & worked
        assert left or len({one.batch_size for one in crashes}) >= ENOUGH


def test_the_script_is_blamed_for_enough_sizes_or_for_all_that_are_left() -> None:
    some = [Crash(size, 0, 1, BUG) for size in (16, 8, 32)]
    assert is_scripts_own(some, ())
    assert not is_scripts_own(some[:2], ())
    assert is_scripts_own(some[:2], (), nothing_left=True)
    assert not is_scripts_own([], (), nothing_left=True)
    assert is_scripts_own(some, {16, 64})  # 16 has worked, and does so no more
    assert not is_scripts_own(some, {64, 128})  # none of these ever has: they may be at fault themselves


@pytest.mark.parametrize("said", ["SyntaxError: invalid syntax", "[rank0]: IndentationError: unexpected indent"])
def test_one_crash_is_enough_where_python_cannot_read_the_script(said: str) -> None:
    assert is_scripts_own([Crash(16, 0, 1, f"  File train.py, line 3\n{said}\n")], {64})
    assert not is_scripts_own([Crash(16, 2, 1, said)], ())  # it has trained: another file is at fault


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (1, "RuntimeError: CUDA error: out of memory"),
        (1, "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        (1, "MemoryError"),
        (1, "RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB on device ordinal 0"),
        (1, "DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes."),
        (1, "DefaultCPUAllocator: can't allocate memory"),
        (1, "This might be caused by insufficient shared memory (shm)."),
        (1, "DataLoader worker (pid 77) is killed by signal: Killed."),
        (1, "Signal 9 (SIGKILL) received by PID 77"),
        (134, "terminate called after throwing an instance of 'std::bad_alloc'"),
        (137, ""),  # killed, as the kernel does where memory ends
    ],
)
def test_want_of_memory_is_seen(status: int, said: str) -> None:
    assert Crash(64, 0, status, said).for_want_of_memory


@pytest.mark.parametrize("said", [BUG, "Segmentation fault", "pin_memory=True: no such argument", "a broom, a room"])
def test_other_ends_are_not_taken_for_it(said: str) -> None:
    assert not Crash(64, 0, 1, said).for_want_of_memory


@pytest.mark.parametrize("word", ["alloc", "allocation", "not enough a", "insufficient"])
def test_no_log_makes_the_search_take_long(word: str) -> None:
    log = word * (65536 // len(word))
    assert regex.compile(_MEMORY.pattern, regex.I).search(log, timeout=2.0) is None  # TimeoutError: it backtracks


@pytest.mark.parametrize("runs", [1, 2, 6])
@pytest.mark.parametrize("policy", ["paper", "structured"])
def test_a_bug_is_seen_however_few_sizes_have_worked_before(policy: str, runs: int) -> None:
    spec = replace(SPEC, policy=policy, mab_seed=1, batch_sizes=(8, 16, 32, 64, 128))
    job = RecurringJob.register(LocalJobs(MemoryStore()), spec)
    good = Outcome(ending=Ending.CONVERGED, joules=300.0, seconds=3.0, epochs=3)
    worked = {one.batch_size for _ in range(runs) for one in recur(job, HERE, lambda trial: good).tries}
    sizes: list[int] = []

    def changed(trial: Trial) -> None:
        if trial.ending is Ending.CRASHED:
            sizes.append(trial.batch_size)
            if is_scripts_own([Crash(size, 0, 1, BUG) for size in sizes], worked):
                raise LaunchError("seen")

    with pytest.raises(LaunchError, match="seen"):
        recur(job, HERE, lambda trial: Outcome(ending=Ending.CRASHED), on_change=changed)
    assert len(sizes) < len(spec.batch_sizes)


@pytest.mark.parametrize("policy", ["paper", "structured", "default"])
def test_after_an_excuse_a_job_is_as_if_the_trials_had_been_lost(policy: str) -> None:
    ends = Outcome(ending=Ending.CRASHED), Outcome(ending=Ending.LOST)
    states = []
    for end in ends:
        store = MemoryStore()
        job = RecurringJob.register(LocalJobs(store), replace(SPEC, policy=policy, mab_seed=1))
        job.tell(job.ask(HERE).number, end)
        if end is ends[0]:
            job.excuse([1])
        states.append(PolicyStateCache().state(store.job("asr"), partial(store.log, "asr")))
        assert job.ask(HERE).batch_size == 16  # the default once more
    assert states[0] == states[1]


def test_a_crash_after_an_epoch_or_after_the_excuse_is_not_excused() -> None:
    store = MemoryStore()
    job = RecurringJob.register(LocalJobs(store), SPEC)
    late = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED, joules=5.0, seconds=1.0, epochs=1))
    job.excuse([late.number])
    after = job.tell(job.ask(HERE).number, Outcome(ending=Ending.CRASHED))
    seen = [as_of_now(store.job("asr"), event) for event in store.log("asr").events]
    ends = {one.number: one.ending for one in seen if isinstance(one, Trial) and one.ended is not None}
    assert ends == {late.number: Ending.CRASHED, after.number: Ending.CRASHED}
