"""Ranks that exchange values over a store: one verdict for all, bounded waits, and what a lost rank leaves behind."""

from __future__ import annotations

import gc
import itertools
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.programs import LOOPBACK_ALONE, need_loopback_alone, python_env, run_python
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.deadline import _threads
from zeus.errors import DeviceError

dist = pytest.importorskip("torch.distributed")

from zeus.distributed import store_group  # noqa: E402 (needs torch)
from zeus.distributed.store_group import BEAT_SECONDS, FAREWELL, StoreGroup  # noqa: E402

PATIENCE = 30.0  # seconds of the ranks' own clock, which moves only when somebody looks at it


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_group, "SLICE_SECONDS", 0.05)
    gc.collect()  # a virtual clock that a test of ranks has left would be taken for this process's


class Seen:
    """The store as a rank sees it, except that the test says who beats."""

    def __init__(self, store: Any, beats: dict[int, Callable[[], bytes]]) -> None:
        self._store, self._beats = store, beats

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if not keys[0].startswith("beat "):
            return list(self._store.multi_get(keys))
        return [self._beats[int(key.removeprefix("beat "))]() for key in keys]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def group(rank: int, size: int, store: Any) -> StoreGroup:
    """A rank whose time passes by a second whenever it looks."""
    ticks = itertools.count()
    return StoreGroup(rank, size, store, PATIENCE, now=lambda: float(next(ticks)))


def beat(count: int, lost: dict[int, str] | None = None) -> bytes:
    """A beat of a rank that misses these others."""
    return pickle.dumps((count, lost or {}))


class Ranks:
    """Ranks in threads of this process, over one store. All are alive unless the test says otherwise."""

    def __init__(self, size: int) -> None:
        self.store = dist.HashStore()
        counts = itertools.count()
        self.beats: dict[int, Callable[[], bytes]] = dict.fromkeys(range(size), lambda: beat(next(counts)))
        self.groups = [group(rank, size, self.store) for rank in range(size)]
        for one in self.groups:
            assert one.everyone()
            one._store = Seen(one._store, self.beats)
        self._pool = ThreadPoolExecutor(size)

    def lose(self, rank: int, last: bytes | None = None) -> None:
        """This rank beats no more. Its last beat is this one."""
        self.beats[rank] = lambda: last or beat(7)

    def start(self, rank: int, call: Callable[[StoreGroup], Any]) -> Future[Any]:
        return self._pool.submit(call, self.groups[rank])

    def gather(self, *ranks: int) -> list[Future[Any]]:
        return [self.start(rank, lambda group, value=rank: group.gather(value)) for rank in ranks]  # type: ignore[misc]


class Limits:
    """Something that ranks set together, and what became of it."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.are_set = True

    def restore(self) -> str | None:
        if not self.are_set:
            return None
        self.are_set = False
        return "restored the power limits of its GPUs"

    def give_up(self, reason: str) -> None:
        self.reasons.append(reason)


def why(found: Future[Any]) -> str:
    error = found.exception(timeout=PATIENCE_SECONDS)
    assert isinstance(error, DeviceError)
    return str(error)


def test_every_rank_gets_all_values_in_rank_order_each_time() -> None:
    ranks = Ranks(3)
    for _ in range(3):
        assert [one.result(PATIENCE_SECONDS) for one in ranks.gather(2, 0, 1)] == [[0, 1, 2]] * 3
    said = [ranks.start(rank, lambda group: group.broadcast(f"rank {group.rank}")) for rank in range(3)]
    assert [one.result(PATIENCE_SECONDS) for one in said] == ["rank 0"] * 3
    assert all(one.waited > 0 for one in ranks.groups)


def test_old_values_do_not_pile_up_in_the_store() -> None:
    ranks = Ranks(2)
    sizes = []
    for _ in range(4):
        [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1)]
        for one in ranks.groups:
            one._beat()
        sizes.append(ranks.store.num_keys())
    assert sizes[1] == sizes[-1]


def test_ranks_that_miss_one_get_the_same_verdict_which_names_it() -> None:
    ranks = Ranks(3)
    alive = ranks.beats[2]
    ranks.lose(2)
    one, other = ranks.gather(0, 1)
    assert why(one) == why(other) == "rank 2 has not answered for 30 s"
    ranks.beats[2] = alive  # it comes back, and learns what the others decided
    (late,) = ranks.gather(2)
    assert why(late) == why(one)
    assert [found.result(PATIENCE_SECONDS) for found in ranks.gather(0, 1, 2)] == [[0, 1, 2]] * 3


def test_the_others_notice_that_the_first_rank_is_lost() -> None:
    ranks = Ranks(3)
    ranks.lose(0)
    one, other = ranks.gather(1, 2)
    assert why(one) == why(other) == "rank 0 has not answered for 30 s"
    (late,) = ranks.gather(0)
    assert why(late) == why(one)


def test_a_rank_that_is_alive_is_waited_for_longer() -> None:
    ranks = Ranks(2)
    found = ranks.start(0, lambda group: str(group._collect({1: "never"}, longest=2 * PATIENCE)))
    assert found.result(PATIENCE_SECONDS) == "rank 1 has done something else for 60 s"


def test_once_a_rank_is_lost_nobody_waits_for_those_that_may_hang_in_the_training_because_of_it() -> None:
    ranks, counts = Ranks(3), itertools.count()
    ranks.lose(2)
    (first,) = ranks.gather(0)  # rank 1 hangs in a collective of the training, and so does rank 0 in the next turn
    assert why(first) == "rank 2 has not answered for 30 s"
    (late,) = ranks.gather(1)
    assert why(late) == why(first)
    ranks.beats[0] = lambda: beat(next(counts), {2: "not answered for 30 s"})
    (other,) = ranks.gather(1)
    assert why(other) == why(first)
    (late,) = ranks.gather(0)
    assert why(late) == why(first)


def test_a_rank_that_is_back_waits_for_the_first_one_which_does_not_know_it_yet() -> None:
    ranks, counts = Ranks(2), itertools.count()
    ranks.beats[0] = lambda: beat(next(counts), {1: "not answered for 30 s"})
    (one,) = ranks.gather(1)
    (other,) = ranks.gather(0)
    assert one.result(PATIENCE_SECONDS) == other.result(PATIENCE_SECONDS) == [0, 1]


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    ranks = Ranks(2)
    ranks.lose(1, FAREWELL)
    (first,) = ranks.gather(0)
    assert why(first) == "rank 1 has ended"


def test_a_lost_rank_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = Ranks(2)
    ranks.lose(1)
    (first,) = ranks.gather(0)
    assert "not answered" in why(first)
    monkeypatch.setattr(store_group, "SLICE_SECONDS", 10 * PATIENCE_SECONDS)
    (again,) = ranks.gather(0)
    assert "not answered" in why(again)


def test_a_rank_that_was_lost_and_is_back_is_waited_for() -> None:
    ranks = Ranks(2)
    alive = ranks.beats[1]
    ranks.lose(1)
    first = ranks.groups[0]
    eventually(lambda: first._look() != {})
    ranks.beats[1] = alive
    (one,) = ranks.gather(0)
    eventually(lambda: first._lost == {})  # it looks again before it gives the other up
    (other,) = ranks.gather(1)
    assert one.result(PATIENCE_SECONDS) == other.result(PATIENCE_SECONDS) == [0, 1]


def test_the_first_rank_that_is_late_for_several_meetings_finds_each_verdict() -> None:
    ranks = Ranks(2)
    alive = ranks.beats[0]
    ranks.lose(0)
    for _ in range(2):
        (one,) = ranks.gather(1)
        assert "rank 0 has not answered" in why(one)
    ranks.beats[0] = alive
    for _ in range(2):
        (late,) = ranks.gather(0)
        assert why(late) == why(one)
    assert [found.result(PATIENCE_SECONDS) for found in ranks.gather(0, 1)] == [[0, 1]] * 2


def test_a_store_that_does_not_answer_cuts_a_rank_off_for_good() -> None:
    ranks = Ranks(2)
    group, answer = ranks.groups[1], threading.Event()

    class Silent:
        def compare_set(self, key: str, expected: str, value: bytes) -> None:
            answer.wait()

    group._store = Silent()
    group._patience = 0.1
    try:
        (found,) = ranks.gather(1)
        assert why(found) == "this rank has not reached the others for 0.1 s"
        began = group._turn
        (again,) = ranks.gather(1)
        assert why(again) == why(found) and group._turn == began
    finally:
        answer.set()
        eventually(lambda: _threads.stuck("torch.distributed") is None)  # or the next test here is not answered either


def test_a_loss_is_said_once_with_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(2)
    ranks.lose(1)

    limits, gone = Limits(), Limits()
    ranks.groups[0].on_loss(limits.restore, limits.give_up)
    ranks.groups[0].on_loss(gone.restore, gone.give_up)
    del gone  # an optimizer that was thrown away is not kept alive
    for _ in range(2):
        (found,) = ranks.gather(0)
        why(found)
    assert len(limits.reasons) == 2
    assert capsys.readouterr().err == (
        "zeus: rank 0: rank 1 has not answered for 30 s. This rank restored the power limits of its GPUs. "
        "Training goes on.\n"
    )


def test_a_rank_lost_while_nobody_waits_has_limits_restored_at_once_and_all_give_up_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = Ranks(3)
    limits = [Limits() for _ in ranks.groups]
    for one, its in zip(ranks.groups, limits, strict=True):
        one.on_loss(its.restore, its.give_up)
    ranks.groups[0].alarm("rank 2 has not answered for 30 s")
    assert [its.are_set for its in limits] == [False, True, True]
    assert not limits[0].reasons  # or it would no longer make the same calls as the others
    found = [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1, 2)]  # it is back
    assert found == [[0, 1, 2]] * 3  # nothing is missing, so what the ranks used is known
    assert [its.are_set for its in limits] == [False] * 3
    assert [its.reasons for its in limits] == [["rank 2 has not answered for 30 s"]] * 3
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1, 2)] == [[0, 1, 2]] * 3
    assert all(len(its.reasons) == 1 for its in limits)


def test_a_loss_that_nobody_is_harmed_by_is_not_brought_up_later(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(2)
    ranks.groups[0].alarm("rank 1 has ended")  # as it does after a training
    limits = Limits()
    ranks.groups[0].on_loss(limits.restore, limits.give_up)
    assert [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1)] == [[0, 1]] * 2
    assert limits.are_set and not limits.reasons and not capsys.readouterr().err


class Watched:
    """Ranks that watch each other. The test says when they look, and which of them beat."""

    def __init__(self, size: int) -> None:
        store, ticks = dist.HashStore(), [0.0]
        self._ticks = ticks
        self.groups = [StoreGroup(rank, size, store, PATIENCE, now=lambda: ticks[0]) for rank in range(size)]
        assert all(one.everyone() for one in self.groups)

    def pass_by(self, seconds: float, alive: set[int], awake: set[int] | None = None) -> list[str]:
        """Time passes. Ranks that are alive beat, and those that are awake look, which by default are the same.

        Returns what each rank has learnt of lost ranks at the last look.
        """
        told = [""] * len(self.groups)
        for _ in range(int(seconds / BEAT_SECONDS)):
            self._ticks[0] += BEAT_SECONDS
            for rank in alive:
                self.groups[rank]._beat()
            for rank in alive if awake is None else awake:
                told[rank] = self.groups[rank]._noticed_loss()
        return told


def test_the_first_rank_watches_all_and_tells_the_others_whom_it_misses() -> None:
    ranks = Watched(3)
    assert ranks.pass_by(60, alive={0, 1, 2}) == ["", "", ""]
    lost = "rank 2 has not answered for 30 s"
    assert ranks.pass_by(PATIENCE + 2 * BEAT_SECONDS, alive={0, 1}) == [lost, lost, ""]
    ranks.groups[2]._beat()
    assert ranks.groups[2]._noticed_loss() == lost  # it learns when it is back
    assert ranks.pass_by(2 * BEAT_SECONDS, alive={0, 1, 2}) == ["", "", ""]
    lost = "rank 0 has not answered for 30 s"
    assert ranks.pass_by(PATIENCE + 2 * BEAT_SECONDS, alive={1, 2}) == ["", lost, lost]


def test_ranks_that_were_all_stopped_and_continued_miss_nobody() -> None:
    ranks = Watched(2)
    ranks.pass_by(60, alive={0, 1})
    ranks._ticks[0] += 3600
    assert ranks.pass_by(BEAT_SECONDS, alive=set(), awake={0, 1}) == ["", ""]  # they look before they beat
    assert ranks.pass_by(60, alive={0, 1}) == ["", ""]


def test_a_rank_that_has_ended_is_missed_only_by_one_that_goes_on_for_long() -> None:
    ranks = Watched(2)
    ranks.pass_by(10, alive={0, 1})
    ranks.groups[0].leave()
    assert ranks.pass_by(PATIENCE - 2 * BEAT_SECONDS, alive={1}) == ["", ""]
    ranks.groups[1]._store = None  # the store may have ended with the first rank, so it is not asked
    assert ranks.pass_by(4 * BEAT_SECONDS, alive=set(), awake={1}) == ["", "rank 0 has ended"]


def test_a_lost_rank_has_limits_restored_once_and_so_has_a_store_that_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = Watched(2)
    limits = [Limits(), Limits()]
    for one, its in zip(ranks.groups, limits, strict=True):
        one.on_loss(its.restore, its.give_up)
    ranks.pass_by(PATIENCE + 2 * BEAT_SECONDS, alive={0})
    ranks.groups[1]._store = None
    for _ in range(2):
        for one in ranks.groups:
            one.tick()
    assert not any(its.are_set or its.reasons for its in limits)
    assert capsys.readouterr().err.splitlines() == [
        "zeus: rank 0: rank 1 has not answered for 30 s. This rank restored the power limits of its GPUs. "
        "Zeus does not end the training.",
        "zeus: rank 1: torch.distributed no longer connects this rank with the others. This rank restored the power "
        "limits of its GPUs. Zeus does not end the training.",
    ]


def test_what_one_rank_posts_another_reads_later_and_nobody_waits_to_post() -> None:
    ranks = Ranks(2)
    ranks.groups[0].post("trial", 7)
    assert ranks.groups[1].read("trial") == ranks.groups[0].read("trial") == 7
    ranks.lose(1, FAREWELL)
    with pytest.raises(DeviceError, match="rank 1 has ended"):
        ranks.groups[0].read("cards", by=1)


def test_ranks_agree_whether_all_use_zeus() -> None:
    store = dist.HashStore()
    assert not group(0, 2, store).everyone(seconds=0.2)
    assert not group(1, 2, store).everyone()  # it is late


def test_ranks_of_a_later_process_group_meet_although_only_some_used_zeus_in_the_first() -> None:
    store = dist.HashStore()
    first = group(0, 2, store)
    first.post("trial", 1)
    first.leave()
    one, other = (group(rank, 2, store) for rank in (0, 1))
    assert one.everyone() and other.everyone()
    one.post("trial", 2)
    assert other.read("trial") == 2
    with pytest.raises(DeviceError, match="no longer connects"):
        first.read("trial")


SEVERAL_GROUPS = """
import os, sys, time, torch, torch.distributed as dist
from zeus.distributed.group import connected_group, rank_group

def train(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", RANK=str(rank), WORLD_SIZE="2")
    for turn in range(3):
        dist.init_process_group("gloo")
        if turn == 0 and rank == 0:
            connected_group()  # only the first rank uses Zeus
        if turn > 0:
            os.write(1, f"{turn} {rank_group().gather((rank, turn))}\\n".encode())  # at once: both ranks print
        dist.barrier()
        dist.destroy_process_group()
        other = os.path.join(sys.argv[1], f"{turn} {1 - rank}")
        open(os.path.join(sys.argv[1], f"{turn} {rank}"), "w").close()
        while not os.path.exists(other):  # else a rank could find the store of the group before, with or without Zeus
            time.sleep(0.01)

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
"""


def test_a_training_may_connect_its_ranks_again_on_the_same_port(tmp_path: Path) -> None:
    need_loopback_alone()
    (tmp_path / "train.py").write_text(SEVERAL_GROUPS)
    env = python_env(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    done = run_python(str(tmp_path / "train.py"), str(tmp_path), env=env, around=LOOPBACK_ALONE)
    assert sorted(done.stdout.splitlines()) == [f"{turn} [(0, {turn}), (1, {turn})]" for turn in (1, 1, 2, 2)]
