"""Runs a pure function over tasks on some workers: answers come in order, and a lost worker's tasks are run again.

Order, repetition and progress are decided here alone. So whatever the workers are, the same answers come out.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from zeus.errors import EngineError

Task = TypeVar("Task")
Answer = TypeVar("Answer")
MOST_LOSSES = 3  # of one task: more are no accident, but the task's own fault (such as too much memory)

_log = logging.getLogger("zeus.simulate")


@dataclass(frozen=True, slots=True)
class Answered:
    """A task is done."""

    answer: Any


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker of a task is gone, and no answer will come: it was killed, or its machine failed."""

    reason: str


class Workers(Protocol):
    """Processes that run tasks, here or on other machines. They serve one call of `answers` at a time."""

    @property
    def room(self) -> int:
        """How many tasks may be started before the next has ended. Enough for no worker to wait."""

    def start(self, function: Callable[[Task], object], task: Task) -> Hashable:
        """Have a worker call the function with the task. Returns a ticket for it."""

    def ended(self) -> Sequence[tuple[Hashable, Answered | WorkerLost]]:
        """Wait until at least one started task is over, and return those that are, each once.

        Raises:
            Exception: What the function raised. That is an answer too, so such a task is not run again.
        """


def answers(function: Callable[[Task], Answer], tasks: Sequence[Task], workers: Workers) -> Iterator[Answer]:
    """Yield the answer to each task, in the order of the tasks.

    Raises:
        EngineError: The same task lost its worker too often.
    """
    waiting = deque(range(len(tasks)))
    running: dict[Hashable, int] = {}
    early: dict[int, Answer] = {}  # answers to later tasks
    losses: Counter[int] = Counter()
    for turn in range(len(tasks)):
        while turn not in early:
            while waiting and len(running) < workers.room:
                number = waiting.popleft()
                running[workers.start(function, tasks[number])] = number
            lost: dict[int, str] = {}
            for ticket, ending in workers.ended():
                match ending:
                    case Answered(answer):
                        early[running.pop(ticket)] = answer
                    case WorkerLost(reason):
                        lost[running.pop(ticket)] = reason
            losses.update([*lost])
            _check(lost, losses, len(tasks))
            waiting.extendleft(sorted(lost, reverse=True))  # first again, as others may wait for their turn
        yield early.pop(turn)


def _check(lost: dict[int, str], losses: Counter[int], total: int) -> None:
    """Say that tasks are run again. Raises EngineError if one was lost too often."""
    for number, reason in lost.items():
        if losses[number] > MOST_LOSSES:
            raise EngineError(
                f"task {number + 1} of {total} lost its worker {losses[number]} times, the last time because {reason}. "
                "Perhaps the machine runs out of memory: use fewer workers, or look into the system's log."
            )
    if lost:
        tasks = "1 task is" if len(lost) == 1 else f"{len(lost)} tasks are"
        _log.warning("a worker was lost: %s. Of %d tasks, %s run again.", next(iter(lost.values())), total, tasks)
