"""Tasks on workers: in order, each as often as its worker is lost and once more, never too many at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.engine_tasks import refuse, square
from zeus.errors import EngineError
from zeus.simulate.engine.shards import MOST_LOSSES, Answered, WorkerLost, answers


class Scripted:
    """Workers that end tasks in a drawn order, and lose some.

    Args:
        room: See `Workers`.
        losses: How often each task loses its worker before it is answered.
        pick: Chooses which of the running tasks end next.
    """

    def __init__(self, room: int, losses: dict[int, int], pick: Callable[[list[int]], list[int]]) -> None:
        self.room, self.losses, self.pick = room, Counter(losses), pick
        self.running: dict[int, tuple[Callable[[Any], object], int]] = {}
        self.started: list[int] = []
        self.most = 0

    def start(self, function: Callable[[Any], object], task: Any) -> Hashable:
        ticket = len(self.started)
        self.started.append(task)
        self.running[ticket] = (function, task)
        self.most = max(self.most, len(self.running))
        return ticket

    def ended(self) -> Sequence[tuple[Hashable, Answered | WorkerLost]]:
        over = self.pick(list(self.running))
        return [(ticket, self.ending(*self.running.pop(ticket))) for ticket in over]

    def ending(self, function: Callable[[Any], object], task: int) -> Answered | WorkerLost:
        if self.losses[task] > 0:
            self.losses[task] -= 1
            return WorkerLost(f"the worker of {task} was killed")
        return Answered(function(task))


def first(running: list[int]) -> list[int]:
    return running[:1]


@given(st.data(), st.integers(0, 12), st.integers(1, 5))
def test_answers_are_in_order_whatever_ends_first_and_whoever_is_lost(
    data: st.DataObject, many: int, room: int
) -> None:
    losses = data.draw(st.dictionaries(st.integers(0, 11), st.integers(0, MOST_LOSSES)))

    def pick(running: list[int]) -> list[int]:
        return data.draw(st.lists(st.sampled_from(running), min_size=1, unique=True))

    workers = Scripted(room, losses, pick)
    assert list(answers(square, range(many), workers)) == [square(n) for n in range(many)]
    assert Counter(workers.started) == Counter({n: 1 + losses.get(n, 0) for n in range(many)})
    assert workers.most <= room


def test_answers_come_as_soon_as_it_is_their_turn() -> None:
    workers = Scripted(2, {}, first)
    stream = answers(square, range(100), workers)
    assert next(stream) == 0
    assert len(workers.started) == 2


def test_a_lost_task_is_run_again_before_new_ones() -> None:
    workers = Scripted(2, {0: 1}, first)
    assert list(answers(square, range(4), workers)) == [0, 1, 4, 9]
    assert workers.started == [0, 1, 0, 2, 3]


def test_a_loss_is_told_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "zeus")
    list(answers(square, range(6), Scripted(3, {1: 1, 2: 1}, list)))
    assert caplog.messages == ["a worker was lost: the worker of 1 was killed. Of 6 tasks, 2 tasks are run again."]


def test_a_task_that_loses_every_worker_ends_the_run() -> None:
    workers = Scripted(2, {5: 99}, first)
    with pytest.raises(EngineError, match=r"task 6 of 8 lost its worker 4 times, .*the worker of 5 was killed"):
        list(answers(square, range(8), workers))
    assert workers.started.count(5) == 1 + MOST_LOSSES


def test_a_task_that_raises_is_not_run_again() -> None:
    workers = Scripted(2, {}, first)
    with pytest.raises(ZeroDivisionError, match="7 is not for me"):
        list(answers(refuse, range(10), workers))
    assert workers.started.count(7) == 1
