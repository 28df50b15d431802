"""Tasks in several processes: answers in order, and a pool that outlives the death of its processes."""

from __future__ import annotations

import logging
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from support.engine_tasks import die, die_once, refuse, square
from zeus.errors import EngineError, InputError
from zeus.simulate.workers import Engine, parse, spread


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
    assert caplog.messages[0].startswith("a worker was lost. ")


def test_a_task_that_kills_every_process_ends_the_run() -> None:
    answers = spread(die, range(8), 2)
    assert [next(answers) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(EngineError, match="4 times in a row a process ended unexpectedly, after 3 of 8 tasks"):
        next(answers)


def test_an_exception_of_a_task_is_raised_here() -> None:
    answers = spread(refuse, range(9), 2)
    assert [next(answers) for _ in range(7)] == list(range(7))
    with pytest.raises(ZeroDivisionError, match="7 is not for me"):
        next(answers)


# ---------------------------------------------------------------------- the name of an engine


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_for = ModuleType("ray")
    stands_for.__spec__ = ModuleSpec("ray", None)
    monkeypatch.setitem(sys.modules, "ray", stands_for)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("local", Engine("local")),
        ("ray", Engine("ray")),
        ("ray:auto", Engine("ray", "auto")),
        ("ray:10.0.0.7:6379", Engine("ray", "10.0.0.7:6379")),
        ("ray:ray://head:10001", Engine("ray", "ray://head:10001")),
        ("ray://head:10001", Engine("ray", "ray://head:10001")),
    ],
)
def test_an_engine_by_name(text: str, meant: Engine) -> None:
    assert parse(text) == meant


@pytest.mark.parametrize("text", ["", "dask", "ray:", "ray://", "local:4", "rays"])
def test_an_unknown_engine_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="Give local, ray, or ray:ADDRESS"):
        parse(text)


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"--engine ray:auto needs Ray\. Run `pip install .*\[ray\]"):
        parse("ray:auto")
    with parse("local").open(workers=None, recurrences=1) as workers:
        assert list(workers(square, range(3))) == [0, 1, 4]
