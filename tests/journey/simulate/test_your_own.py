"""docs/your-own.md: every file of the page is written, and every command of it is run, in order."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCES
from support.waiting import PATIENCE_SECONDS

INCLUDED = re.compile(r'^--8<-- "(.+)"\n', re.MULTILINE)
PAGE = INCLUDED.sub(
    lambda found: (ROOT / found[1]).read_text("utf-8"), (ROOT / "docs" / "your-own.md").read_text("utf-8")
)
FILE = re.compile(r'^```(?:\w+| \{ \.python) title="(\S+)"(?: \})?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)
pytest.importorskip("matplotlib", reason="pictures need the extra `plots`")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    *variables, words = re.split(r"(?<=\S) (?=zeus )", command, maxsplit=1)
    env = {name: value for name, value in os.environ.items() if not name.startswith("ZEUS_")} | {
        "PYTHONPATH": str(SOURCES),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ZEUS_VIRTUAL_STATE": str(folder / "cards"),
        "ZEUS_KEEPER_STATE": str(folder / "keeper"),
        "ZEUS_STORE": f"sqlite:///{folder / 'zeus.db'}",
        **dict(one.split("=", 1) for one in variables),
    }
    if "ZEUS_GPU" in env:
        env["ZEUS_GPU"] += "?clock=virtual"  # the page's reader has the time
    program = [sys.executable, "-m", "zeus.cli", *shlex.split(words)[1:]]
    return subprocess.run(
        program, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )


def test_the_page_runs_from_top_to_bottom(tmp_path: Path) -> None:
    for name, text in FILE.findall(PAGE):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    said = {}
    for command in COMMANDS:
        ran = run(command, tmp_path)
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        said[command] = ran.stdout
    assert "mine:Cheapest" in said[COMMANDS[0]]
    (real,) = (out for command, out in said.items() if "zeus run" in command)
    sizes = [int(size) for size in re.findall(r"batch size (\d+) reached", real)]
    assert sizes[:3] == [16, 32, 64] and len(sizes) == 5
    assert len(set(sizes[3:])) == 1  # the cheapest, on a machine that may do much else meanwhile
    (shown,) = (out for command, out in said.items() if "jobs show" in command)
    assert "policy mine:Cheapest (version 1)" in shown
    assert "32 was never tried" in shown
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    assert {row["gpu"] for row in rows} == {"virtual:card"}
    assert [row["policy"] for row in rows[:6]] == ["paper"] * 3 + ["structured"] * 3
    assert (tmp_path / "results.png").read_bytes().startswith(b"\x89PNG")


def test_the_pages_policy_takes_about_twenty_lines() -> None:
    (text,) = (text for name, text in FILE.findall(PAGE) if name == "mine.py")
    own = text.partition("class Cheapest")[2]
    assert len([line for line in own.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((".png", ".xls"), "--out results.xls: give a name that ends in .csv, .parquet, .png."),
        (("results.csv", "nowhere/r.csv"), "there is no folder nowhere"),
        (("--gpu card.toml", "--gpu none.toml"), "none.toml: cannot be read"),
    ],
)
def test_what_cannot_be_written_or_read_is_said_before_anything_is_replayed(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    for name, text in FILE.findall(PAGE):
        if "/" not in name:
            (tmp_path / name).write_text(text)
    ran = run(COMMANDS[-1].replace(*change), tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('like = "a100"', 'like = "a1000"'), "Did you mean 'a100'"),
        (('like = "a100"', ""), "like is missing: give a name"),
        (("max_watts = 500", "max_wats = 500"), "card.toml, line 2: max_wats is not known. Did you mean 'max_watts'"),
        (("max_watts = 500", "max_watts = 50"), "lowest, default and highest limits are 100, 50 and 50 W"),
        (("= 1.4", "= 0"), "line 3: compute_speed = 0: give a number above 0"),
    ],
)
def test_a_mistake_in_a_card_is_told_with_its_line(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    (text,) = (text for name, text in FILE.findall(PAGE) if name == "card.toml")
    (tmp_path / "card.toml").write_text(text.replace(*change))
    ran = run("zeus simulate --gpu card.toml --workload BERT-SA", tmp_path)
    assert ran.returncode == 2
    assert said in ran.stderr


def test_results_are_written_as_parquet_if_pandas_is_there(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    ran = run("zeus simulate --gpu virtual:v100 --workload BERT-SA --policy paper,default --out r.parquet", tmp_path)
    assert ran.returncode == 0, ran.stderr
    table = pandas.read_parquet(tmp_path / "r.parquet")
    assert list(table.policy) == ["paper", "default"]
    assert set(table.choices[1].split()) == {"128@250"}
