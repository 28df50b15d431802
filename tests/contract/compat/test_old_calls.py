"""The existing package's documented calls, tried one by one; and all of its public names, read from its release.

A name is here, or its use ends with one sentence that says what to use instead: never a bare ImportError.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.environments import environment
from support.old_calls import PAGE, settings, tables
from zeus.errors import NotHere

INTERNAL = {  # states of its classes and helpers that nothing documents
    "zeus.monitor.carbon": {"Op"},
    "zeus.monitor.price": {"Op", "get_time_info"},
    "zeus.monitor.energy": {"MeasurementState"},
    "zeus.optimizer.power_limit": {"Done", "Profiling", "Ready", "Warmup"},
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    pytest.importorskip("transformers", reason="needs `pip install transformers accelerate`")
    pytest.importorskip("prometheus_client", reason="needs `pip install prometheus-client`")
    for name in ("CUDA_VISIBLE_DEVICES", "ZEUS_MODE", "ZEUS_PROFILING", "ZEUS_READ_ONLY", "ZEUS_KEEPER", "ZEUS_STORE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tables(tmp_path)


def test_the_page_says_what_each_example_and_call_does(made: dict[str, str]) -> None:
    """`python tests/support/old_calls.py` prints the tables anew."""
    page = PAGE.read_text()
    for name, table in made.items():
        place = re.search(rf"<!-- {name} -->\n\n(.*?)\n<!-- end -->", page, re.DOTALL)
        assert place is not None and place[1] == table
    assert not re.search("ImportError|ModuleNotFoundError|AttributeError|TypeError", "".join(made.values()))


@pytest.fixture(scope="module")
def release() -> Path:
    """The files of the existing package, as published."""
    python = environment(Path(sys.executable), "zeus==0.16.0")
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    return folder


def public_names(file: Path) -> Iterator[str]:
    """Classes and functions that a module defines, and names that a package takes from its modules."""
    for node in ast.parse(file.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) if not name.startswith("_"):
                yield name
            case ast.ImportFrom(module=str(module)) if module.startswith("zeus") and file.name == "__init__.py":
                yield from (one.asname or one.name for one in node.names if one.name != "*")


def attempt(module: str, name: str) -> str | None:
    """What is wrong with the error of this import; None if there is none, or if it is a sentence of ours."""
    try:
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
    except NotHere as here:
        return None if str(here).endswith(".") else str(here)
    except Exception as bare:
        return f"{module}.{name}: {bare!r}"
    return None


@pytest.mark.peers
def test_every_public_name_is_here_or_says_what_to_use_instead(release: Path) -> None:
    wrong, names = [], 0
    for file in sorted((release / "zeus").rglob("*.py")):
        module = ".".join(file.relative_to(release).with_suffix("").parts).removesuffix(".__init__")
        if file.name == "__main__.py":
            continue
        for name in set(public_names(file)) - INTERNAL.get(module, set()):
            names += 1
            wrong.append(attempt(module, name))
    assert names > 200
    assert [one for one in wrong if one] == []


@pytest.mark.peers
def test_every_import_of_its_examples_works_or_says_what_to_use_instead(release: Path) -> None:
    files = sorted((release / "examples").rglob("*.py"))
    assert len(files) > 10
    wanted = {
        (node.module, one.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "zeus"
        for one in node.names
    }
    found = {(module, name): attempt(module, name) for module, name in wanted}
    assert len(found) > 10
    assert [one for one in found.values() if one] == []
