"""The artifact: `make reproduce`, the exact versions, the citation, and the committed report."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from importlib.metadata import distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.environments import requirements
from support.paths import ROOT
from support.waiting import PATIENCE_SECONDS

MADE = ROOT / "docs" / "reproduced"


def make(*words: str, data: Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    return subprocess.run(
        ["make", "--directory", ROOT, *words],
        env={**os.environ, "ZEUS_DATA": str(data)},
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def test_make_reproduce_without_data_refuses_before_it_installs_anything(tmp_path: Path) -> None:
    done = make("reproduce", f"VENV={tmp_path / 'env'}", f"OUT={tmp_path / 'out'}", data=tmp_path)
    assert done.returncode == 2
    assert f"no paper's traces in {tmp_path}/nsdi23_traces" in done.stderr
    assert "Set ZEUS_DATA to the folder that holds nsdi23_traces" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_make_reproduce_hands_the_data_to_the_command(tmp_path: Path) -> None:
    traces = tmp_path / "nsdi23_traces"
    traces.mkdir()
    (traces / "summary_power_v100.csv").touch()
    done = make("--dry-run", "reproduce", "OUT=there", data=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"zeus reproduce --traces '{traces}' --data '{tmp_path}' --out 'there'" in done.stdout


def test_the_versions_behind_the_report_are_exact_and_complete() -> None:
    lines = [Requirement(line) for line in _lines(ROOT / "constraints-reproduce.txt")]
    assert all([bound.operator for bound in line.specifier] == ["=="] for line in lines)
    pinned = {canonicalize_name(line.name) for line in lines}
    waiting = [canonicalize_name(need.name) for need in requirements("plots")]
    while waiting:
        name = waiting.pop()
        assert name in pinned
        for need in map(Requirement, distribution(name).requires or ()):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(need.name))


def test_the_citation_names_the_paper() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)  # what the format requires
    paper = cited["preferred-citation"]
    assert paper["type"] == "conference-paper"
    assert paper["title"] == "Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training"
    assert [author["family-names"] for author in paper["authors"]] == ["You", "Chung", "Chowdhury"]
    assert (paper["conference"]["name"], paper["year"]) == ("NSDI '23", 2023)


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.skipif(not MADE.exists(), reason="the report is part of a checkout, not of the sdist")
class TestTheCommittedReport:
    def test_it_is_whole_and_light(self) -> None:
        page = (MADE / "report.html").read_text()
        tables = {one.stem for one in (MADE / "figures").glob("*.csv")}
        assert len(tables) > 70
        assert set(re.findall(r'<figure id="picture_(\w+)"', page)) == tables
        assert list(MADE.rglob("*.png")) == []  # they are in the page
        assert sum(one.stat().st_size for one in MADE.rglob("*") if one.is_file()) < 4_500_000

    def test_it_was_made_with_the_versions_that_are_stated_and_the_published_inputs(self) -> None:
        made = json.loads((MADE / "provenance.json").read_text())
        stated = dict(line.split("==") for line in _lines(ROOT / "constraints-reproduce.txt"))
        versions = {name: number for name, number in made["software"].items() if name not in {"zeus", "Python"}}
        assert versions == {name: stated[name] for name in versions}
        assert f"Python {made['software']['Python']}" in (ROOT / "constraints-reproduce.txt").read_text()
        assert {one["match"] for one in made["inputs"]} == {"same"}
        assert made["seeds"] == 20

    def test_the_pages_that_lead_to_it_find_it(self) -> None:
        page = (ROOT / "docs" / "reproducing.md").read_text()
        links = re.findall(r'href="(reproduced/[^"]+)"', page)
        assert links
        for link in links:
            assert (ROOT / "docs" / link).exists(), link
