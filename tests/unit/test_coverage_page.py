"""docs/coverage.md names what is there: modules, files, tests and rows of the report. Its counts are right.

It cannot check that a verdict is true. It keeps the page from naming what has moved or gone.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCES, TESTS
from zeus.cli.main import COMMANDS
from zeus.reproduce import comparison

PAGE = ROOT / "docs" / "coverage.md"
REPORT = ROOT / "docs" / "reproduced" / "report.json"
VERDICTS = ("whole", "differs", "partial", "missing")
CLAIMS = 147
NAMED = re.compile(r"`([^`]+)`")
REPORTED = re.compile(r"(?:table|figure|section)_\d+\.\w+")


@dataclass(frozen=True)
class Row:
    """One claim of the page."""

    number: int
    claim: str
    where: str
    check: str
    verdict: str
    reason: str


def rows() -> list[Row]:
    found = []
    for line in PAGE.read_text().splitlines():
        if re.match(r"\| \d+ \|", line):
            number, claim, where, check, verdict = (cell.strip() for cell in line.strip("|").split("|"))
            word, _, reason = verdict.partition(":")
            found.append(Row(int(number), claim, where, check, word, reason.strip()))
    return found


ROWS = rows()
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


def test_every_claim_has_one_row_in_order() -> None:
    assert [row.number for row in ROWS] == list(range(1, CLAIMS + 1))


def test_a_row_says_what_is_claimed_where_it_is_how_it_was_checked_and_what_came_out() -> None:
    for row in ROWS:
        assert row.claim and row.where and row.check, row
        assert row.verdict in VERDICTS, row
        assert (row.verdict == "whole") == (row.reason == ""), row


def test_what_a_row_names_is_there() -> None:
    named = ((row.number, name) for row in ROWS for name in NAMED.findall(f"{row.where} {row.check}"))
    assert [(number, name) for number, name in named if not is_there(name)] == []


@pytest.mark.skipif(not REPORT.is_file(), reason="the published report is in a checkout only")
def test_no_row_is_whole_whose_numbers_are_outside_their_tolerance_in_the_published_report() -> None:
    outside = {row["id"] for row in json.loads(REPORT.read_text("utf-8")) if row["within"] is False}
    assert outside
    assert [row.number for row in ROWS if row.verdict == "whole" and outside & {*NAMED.findall(row.check)}] == []


def test_the_counts_at_the_top_are_those_of_the_rows() -> None:
    told = dict(re.findall(r"^\| (\w+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE))
    counted = Counter(row.verdict for row in ROWS)
    assert told == {verdict: str(counted[verdict]) for verdict in VERDICTS} | {"all": str(CLAIMS)}


@pytest.mark.parametrize(
    "name", ["test_that_nobody_wrote", "figure_01.no_row", "zeus sing", "zeus.cost.Nobody", "zeus.nowhere", "no.md"]
)
def test_what_is_not_there_is_noticed(name: str) -> None:
    assert not is_there(name)
