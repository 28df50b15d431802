"""Workers on this machine: none for one process, and a pool that outlives the death of its processes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from support.engine_tasks import die, die_once, refuse, square
from zeus.errors import EngineError
from zeus.simulate.engine.local import spread


def own_pid(_: int) -> int:
    return os.getpid()


def test_one_process_is_this_one() -> None:
    assert list(spread(own_pid, range(3), 1)) == [os.getpid()] * 3


def test_a_pool_answers_in_order() -> None:
    assert list(spread(square, range(30), 2)) == [square(n) for n in range(30)]


def test_no_tasks_have_no_answers() -> None:
    assert list(spread(square, [], 2)) == []


def test_the_tasks_of_a_killed_process_are_run_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "zeus")
    killed = tmp_path / "3"
    for number in (one for one in range(8) if one != 3):
        (tmp_path / str(number)).touch()
    assert list(spread(die_once, [(str(tmp_path), n) for n in range(8)], 2)) == [square(n) for n in range(8)]
    assert killed.exists()
    assert len(caplog.messages) == 1
    assert "a worker was lost: a process ended unexpectedly" in caplog.messages[0]


def test_a_task_that_kills_every_process_ends_the_run() -> None:
    with pytest.raises(EngineError, match="lost its worker 4 times"):
        list(spread(die, range(8), 2))


def test_an_exception_of_a_task_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError, match="7 is not for me"):
        list(spread(refuse, range(8), 2))
