"""The name of an engine: what is known, and what is asked for when Ray is missing."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from support.engine_tasks import square
from zeus.errors import InputError
from zeus.simulate.engine.engine import Engine, parse
from zeus.simulate.engine.shards import answers


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
        assert list(answers(square, range(3), workers)) == [0, 1, 4]
