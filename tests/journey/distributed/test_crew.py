"""Ranks that exchange values over a store: one verdict for all, bounded waits, and what a lost rank leaves behind."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.deadline import _threads
from zeus.errors import DeviceError

dist = pytest.importorskip("torch.distributed")

from zeus.distributed import torch_board  # noqa: E402 (needs torch)
from zeus.distributed.torch_board import BEAT_SECONDS, FAREWELL, TorchBoard, _Watch  # noqa: E402
from zeus.distributed.torch_crew import TorchCrew  # noqa: E402

PATIENCE = 30.0  # seconds of the ranks' own clock, which moves only when somebody looks at it


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_board, "SLICE_SECONDS", 0.05)


class Board(TorchBoard):
    """A board on which the test says who beats."""

    def __init__(self, rank: int, size: int, store: Any, beats: dict[int, Callable[[], bytes]]) -> None:
        ticks = itertools.count()
        super().__init__(rank, size, store, PATIENCE, now=lambda: float(next(ticks)))
        self._beats_of = beats

    def _beat_of(self, rank: int) -> bytes:
        return self._beats_of[rank]()


class Ranks:
    """Ranks in threads of this process, over one store. All are alive unless the test says otherwise."""

    def __init__(self, size: int) -> None:
        self.store, self.size = dist.HashStore(), size
        counts = itertools.count()
        self.beats: dict[int, Callable[[], bytes]] = dict.fromkeys(range(size), lambda: str(next(counts)).encode())
        self.crews = [TorchCrew(Board(rank, size, self.store, self.beats)) for rank in range(size)]
        self._pool = ThreadPoolExecutor(size)

    def lose(self, rank: int, beat: bytes = b"7") -> None:
        self.beats[rank] = lambda: beat

    def start(self, rank: int, call: Callable[[TorchCrew], Any]) -> Future[Any]:
        return self._pool.submit(call, self.crews[rank])

    def gather(self, *ranks: int) -> list[Future[Any]]:
        return [self.start(rank, lambda crew, value=rank: crew.gather(value)) for rank in ranks]  # type: ignore[misc]


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
    said = [ranks.start(rank, lambda crew: crew.broadcast(f"rank {crew.rank}")) for rank in range(3)]
    assert [one.result(PATIENCE_SECONDS) for one in said] == ["rank 0"] * 3
    assert all(crew.waited > 0 for crew in ranks.crews)


def test_old_values_do_not_pile_up_in_the_store() -> None:
    ranks = Ranks(2)
    sizes = []
    for _ in range(4):
        [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1)]
        sizes.append(ranks.store.num_keys())
    assert sizes[1] == sizes[-1]


def test_ranks_that_miss_one_get_the_same_verdict_which_names_it() -> None:
    ranks = Ranks(3)
    alive = ranks.beats[2]
    ranks.lose(2)
    one, other = ranks.gather(0, 1)
    assert why(one) == why(other) == "rank 2 has shown no sign of life for 30 s"
    ranks.beats[2] = alive  # it comes back, and learns what the others decided
    (late,) = ranks.gather(2)
    assert why(late) == why(one)
    assert [found.result(PATIENCE_SECONDS) for found in ranks.gather(0, 1, 2)] == [[0, 1, 2]] * 3


def test_the_others_notice_that_the_first_rank_is_lost() -> None:
    ranks = Ranks(3)
    ranks.lose(0)
    one, other = ranks.gather(1, 2)
    assert why(one) == why(other) == "rank 0 has shown no sign of life for 30 s"
    (late,) = ranks.gather(0)
    assert why(late) == why(one)


def test_a_rank_that_is_alive_is_waited_for_longer() -> None:
    ranks = Ranks(2)
    found = ranks.start(0, lambda crew: crew._board.read_all({1: "never"}, longest=10 * PATIENCE))
    assert why(found) == "rank 1 has done something else for 300 s"


def test_a_rank_that_has_ended_is_not_waited_for() -> None:
    ranks = Ranks(2)
    ranks.lose(1, FAREWELL)
    (first,) = ranks.gather(0)
    assert why(first) == "rank 1 has ended"


def test_a_lost_rank_is_waited_for_once() -> None:
    ranks = Ranks(2)
    ranks.lose(1)
    (first,) = ranks.gather(0)
    assert "no sign of life" in why(first)
    board = ranks.crews[0]._board
    board._come = lambda *_: pytest.fail("it was waited for again")  # type: ignore[method-assign]
    (again,) = ranks.gather(0)
    assert "no sign of life" in why(again)


def test_a_store_that_does_not_answer_cuts_a_rank_off_for_good() -> None:
    ranks = Ranks(2)
    crew, answer = ranks.crews[1], threading.Event()

    class Silent:
        def set(self, key: str, value: str) -> None:
            answer.wait()

    crew._board._store = Silent()
    crew._board._patience = 0.1
    try:
        (found,) = ranks.gather(1)
        assert why(found) == "this rank has not reached the others for 0.1 s"
        began = crew._turn
        (again,) = ranks.gather(1)
        assert why(again) == why(found) and crew._turn == began
    finally:
        answer.set()
        eventually(lambda: _threads.stuck("torch.distributed") is None)  # or the next test here is not answered either


def test_a_loss_is_said_once_with_what_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(2)
    ranks.lose(1)

    limits, gone = Limits(), Limits()
    ranks.crews[0].on_loss(limits.restore, limits.give_up)
    ranks.crews[0].on_loss(gone.restore, gone.give_up)
    del gone  # an optimizer that was thrown away is not kept alive
    for _ in range(2):
        (found,) = ranks.gather(0)
        why(found)
    assert len(limits.reasons) == 2
    assert capsys.readouterr().err == (
        "zeus: rank 0: rank 1 has shown no sign of life for 30 s. This rank restored the power limits of its GPUs. "
        "Training goes on.\n"
    )


def test_a_rank_lost_while_nobody_waits_has_limits_restored_at_once_and_all_give_up_together(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = Ranks(3)
    limits = [Limits() for _ in ranks.crews]
    for crew, its in zip(ranks.crews, limits, strict=True):
        crew.on_loss(its.restore, its.give_up)
    ranks.crews[0].alarm("rank 2 has shown no sign of life for 30 s")
    assert [its.are_set for its in limits] == [False, True, True]
    assert not limits[0].reasons  # or it would no longer make the same calls as the others
    found = [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1, 2)]  # it is back
    assert found == [[0, 1, 2]] * 3  # nothing is missing, so what the ranks used is known
    assert [its.are_set for its in limits] == [False] * 3
    assert [its.reasons for its in limits] == [["rank 2 has shown no sign of life for 30 s"]] * 3
    assert len(capsys.readouterr().err.splitlines()) == 3
    assert [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1, 2)] == [[0, 1, 2]] * 3
    assert all(len(its.reasons) == 1 for its in limits)


def test_a_loss_that_nobody_is_harmed_by_is_not_brought_up_later(capsys: pytest.CaptureFixture[str]) -> None:
    ranks = Ranks(2)
    ranks.crews[0].alarm("rank 1 has ended")  # as it does after a training
    limits = Limits()
    ranks.crews[0].on_loss(limits.restore, limits.give_up)
    assert [one.result(PATIENCE_SECONDS) for one in ranks.gather(0, 1)] == [[0, 1]] * 2
    assert limits.are_set and not limits.reasons and not capsys.readouterr().err


class Watched:
    """Ranks that watch each other. The test says when they look, and which of them beat."""

    def __init__(self, size: int) -> None:
        self.told: list[list[str]] = [[] for _ in range(size)]
        store, ticks = dist.HashStore(), [0.0]
        self._ticks = ticks
        self.boards = [TorchBoard(rank, size, store, PATIENCE, now=lambda: ticks[0]) for rank in range(size)]
        self.looks = [
            _Watch(board, board._connection(), told.append) for board, told in zip(self.boards, self.told, strict=True)
        ]
        self._count = 0

    def pass_by(self, seconds: float, alive: set[int], awake: set[int] | None = None) -> None:
        """Time passes. Ranks that are alive beat, and those that are awake look, which by default are the same."""
        for _ in range(int(seconds / BEAT_SECONDS)):
            self._ticks[0] += BEAT_SECONDS
            self._count += 1
            for rank in alive:
                board = self.boards[rank]
                board._store.set(f"beat {rank}", board.beat_text(self._count))
            for rank in alive if awake is None else awake:
                self.looks[rank]()


def test_the_first_rank_watches_all_and_tells_the_others_whom_it_misses() -> None:
    ranks = Watched(3)
    ranks.pass_by(60, alive={0, 1, 2})
    assert ranks.told == [[], [], []]
    ranks.pass_by(PATIENCE + 2 * BEAT_SECONDS, alive={0, 1})
    assert ranks.told == [["rank 2 has shown no sign of life for 30 s"]] * 2 + [[]]
    ranks.pass_by(60, alive={0, 1, 2})
    assert ranks.told == [["rank 2 has shown no sign of life for 30 s"]] * 3  # it learns when it is back, and all once
    ranks.pass_by(PATIENCE + 2 * BEAT_SECONDS, alive={1, 2})
    assert [told[1:] for told in ranks.told] == [[], *[["rank 0 has shown no sign of life for 30 s"]] * 2]


def test_ranks_that_were_all_stopped_and_continued_miss_nobody() -> None:
    ranks = Watched(2)
    ranks.pass_by(60, alive={0, 1})
    ranks._ticks[0] += 3600
    ranks.pass_by(BEAT_SECONDS, alive=set(), awake={0, 1})  # they look before they beat
    ranks.pass_by(60, alive={0, 1})
    assert ranks.told == [[], []]


def test_a_rank_that_has_ended_is_missed_only_by_one_that_goes_on_for_long() -> None:
    ranks = Watched(2)
    ranks.pass_by(10, alive={0, 1})
    ranks.boards[0]._store.set("beat 0", FAREWELL)
    ranks.pass_by(PATIENCE - 2 * BEAT_SECONDS, alive={1})
    assert ranks.told == [[], []]
    ranks.looks[1]._store = None  # the store may have ended with the first rank, so it is not asked
    ranks.pass_by(3 * BEAT_SECONDS, alive=set(), awake={1})
    assert ranks.told == [[], ["rank 0 has ended"]]


def test_ranks_agree_whether_all_use_zeus_and_a_later_group_starts_afresh() -> None:
    store = dist.HashStore()
    first = TorchBoard(0, 2, store, PATIENCE)
    assert not first.everyone(timedelta(seconds=0.2))
    assert not TorchBoard(1, 2, store, PATIENCE).everyone()  # it is late
    one, other = (TorchBoard(rank, 2, store, PATIENCE) for rank in (0, 1))
    assert one.everyone() and other.everyone()
