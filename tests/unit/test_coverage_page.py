"""docs/assets/coverage.toml names what is there: modules, files, tests and rows of the report; its page is current.

It cannot check that a verdict is true. It keeps the page from naming what has moved or gone.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.paths import ROOT, SOURCES, TESTS
from zeus.cli.main import COMMANDS
from zeus.reproduce import comparison

REPORT = ROOT / "docs" / "reproduced" / "report.json"
CLAIMS = 147
NAMED = re.compile(r"`([^`]+)`")
REPORTED = re.compile(r"(?:table|figure|section)_\d+\.\w+")


def maker() -> ModuleType:
    """The program that makes the page."""
    spec = importlib.util.spec_from_file_location("coverage_page", ROOT / "docs" / "assets" / "coverage_page.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # where its dataclass looks for its annotations
    spec.loader.exec_module(made)
    return made


MAKER = maker()
ROWS = MAKER.claims()
TEST_NAMES = {
    name for file in TESTS.rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))
}
REPORT_IDS = {one.id for one in comparison.read()}


def is_there(name: str) -> bool:
    """Whether a test, row of the report, command, file, or module (with or without a name in it) exists."""
    if name.startswith("test_") and not name.endswith(".py"):
        return name in TEST_NAMES
    if REPORTED.fullmatch(name) and not name.endswith(".py"):
        return name in REPORT_IDS
    if name.startswith("zeus "):
        return name.split()[1] in COMMANDS
    if name.startswith("zeus."):
        return is_module(name)
    return (ROOT / name).is_file()


def is_module(name: str) -> bool:
    path, parts = SOURCES, name.split(".")
    while parts and ((path / parts[0]).is_dir() or (path / f"{parts[0]}.py").is_file()):
        path = path / parts.pop(0)
        if path.with_suffix(".py").is_file():
            path = path.with_suffix(".py")
            break
    text = source(path).read_text("utf-8")
    return all(re.search(rf"^\s*(?:class|def) {part}\b|^\s*{part}\b.*=", text, re.MULTILINE) for part in parts)


def source(path: Path) -> Path:
    return path if path.is_file() else path / "__init__.py"


def test_a_row_says_what_is_claimed_where_it_is_how_it_was_checked_and_what_came_out() -> None:
    assert len(ROWS) == CLAIMS
    for row in ROWS:
        assert row.claim and row.where and row.checked, row
        assert row.verdict in MAKER.VERDICTS, row
        assert (row.verdict == "whole") == (row.reason == ""), row


def test_what_a_row_names_is_there() -> None:
    named = ((row.number, name) for row in ROWS for name in NAMED.findall(f"{row.where} {row.checked}"))
    assert [(number, name) for number, name in named if not is_there(name)] == []


@pytest.mark.skipif(not REPORT.is_file(), reason="the published report is in a checkout only")
def test_no_row_is_whole_whose_numbers_are_outside_their_tolerance_in_the_published_report() -> None:
    outside = {row["id"] for row in json.loads(REPORT.read_text("utf-8")) if row["within"] is False}
    assert outside
    assert [row.number for row in ROWS if row.verdict == "whole" and outside & {*NAMED.findall(row.checked)}] == []


def test_the_page_is_current() -> None:
    assert MAKER.page() == MAKER.PAGE.read_text(encoding="utf-8"), "run `make docs`"


@pytest.mark.parametrize(
    "name", ["test_that_nobody_wrote", "figure_01.no_row", "zeus sing", "zeus.cost.Nobody", "zeus.nowhere", "no.md"]
)
def test_what_is_not_there_is_noticed(name: str) -> None:
    assert not is_there(name)
