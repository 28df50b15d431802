"""Every command of docs/tutorial.md runs, in order and in one shell, and prints what the page shows.

The JSON about its job has no key that docs/reference.md does not name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import EXAMPLES, ROOT, SOURCES
from support.waiting import PATIENCE_SECONDS

pytest.importorskip("torch")

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
REFERENCE = (ROOT / "docs" / "reference.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d[\d.,]*(?: (?:[kM]?J|W|MB))?")


def commands() -> list[tuple[str, list[str]]]:
    """Each command with the lines that the page shows below it."""
    found: list[tuple[str, list[str]]] = []
    for language, text in BLOCK.findall(PAGE):
        for line in text.splitlines() if language == "console" else ():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line != "...":
                found[-1][1].append(line)
    return found


def keys(value: object) -> set[str]:
    """Every key of some JSON; those of `limits` are watts, and those of `spec` are fields of JobSpec."""
    match value:
        case dict():
            inner = [keys(one) for name, one in value.items() if name not in {"limits", "spec", "endings"}]
            return set(value).union(*inner)
        case list():
            return set().union(*map(keys, value))
        case _:
            return set()


def words(line: str) -> str:
    """A line without its numbers, which another version of PyTorch may change."""
    return " ".join(NUMBER.sub("#", line).split())


@pytest.mark.usefixtures("warm_torch")
def test_the_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "tutorial", tmp_path / "examples" / "tutorial")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, start in (("python", ""), ("zeus", "-m zeus.cli")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n')
        (programs / name).chmod(0o755)
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCES),
        "COLUMNS": "200",
    }
    asked = [*commands(), ("zeus jobs list --json", []), ("zeus jobs show classifier --json", [])]
    marked = "\n".join(f"echo '@@{number}'\n{command} 2>&1" for number, (command, _) in enumerate(asked))
    shell = ["bash", "-e", "-c", marked]
    done = subprocess.run(
        shell, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=10 * PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = re.split(r"^@@\d+\n", done.stdout, flags=re.MULTILINE)[1:]
    for (command, shown), output in zip(asked, printed, strict=True):
        lines = {words(line) for line in output.splitlines()}
        assert [line for line in shown if words(line) not in lines] == [], f"{command}\n{output}"
    assert (tmp_path / "examples" / "tutorial" / "page.html").stat().st_size > 0
    found = keys([json.loads(output) for output in printed[-2:]])
    assert sorted(one for one in found if f"`{one}`" not in REFERENCE) == [], "docs/reference.md does not name them"


def test_the_page_shows_the_files_of_the_example() -> None:
    for path in (EXAMPLES / "tutorial").iterdir():
        assert f'--8<-- "{path.relative_to(ROOT)}"' in PAGE
