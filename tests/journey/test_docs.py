"""Every Python example of README.md and docs/ runs, on a virtual GPU; every command and link in them exists.

```pycon blocks are doctests, ```python blocks are run as they stand. The blocks of a page share their names, in order.
"""

from __future__ import annotations

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCES
from support.waiting import PATIENCE_SECONDS
from zeus.cli.main import COMMANDS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
SHELL = ("sh", "bash", "console")


def blocks(page: Path, *languages: str) -> list[tuple[int, str, str]]:
    """(line, language, code) of the fenced blocks of a page."""
    text = page.read_text()
    found = [(text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in FENCE.finditer(text)]
    return [block for block in found if block[1] in languages]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python", "pycon")], ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEUS_GPU", "virtual:v100?clock=virtual")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__example__"}
    for line, language, code in blocks(page, "python", "pycon"):
        if language == "python":
            exec(compile("\n" * line + code, str(page), "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(code, names, f"{name(page)}, line {line}", str(page), line)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(example, out=said.append, clear_globs=False)
        names.update(example.globs)
        assert not runner.failures, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    lines = [line for _, _, code in blocks(page, *SHELL) for line in code.splitlines()]
    used = {m[1] for line in lines if (m := re.match(r"(?:\$ )?(?:sudo )?(?:\w+=\S+ )*zeus ([a-z]+)", line))}
    targets = {m[1] for line in lines if (m := re.match(r"(?:\$ )?make ([a-z]+)", line))}
    assert used <= set(COMMANDS)
    assert targets <= set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def shape(value: object) -> object:
    """The keys of some JSON, whatever the values."""
    match value:
        case dict():
            return {key: shape(inner) for key, inner in value.items()}
        case [dict() as first, *_]:
            return [shape(first)]
        case _:
            return None


@pytest.mark.parametrize("command", ["env", "measure", "monitor"])
def test_the_documented_json_has_the_keys_of_the_real_one(command: str, tmp_path: Path) -> None:
    section = (ROOT / "docs" / "reference.md").read_text().partition(f"### zeus {command}\n")[2]
    (_, typed), (_, shown) = FENCE.findall(section)[:2]
    variable, _, arguments = typed.removeprefix("$ ").strip().partition(" zeus ")
    paths = [str(SOURCES), os.environ.get("PYTHONPATH", "")]
    state = {"ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-m", "zeus.cli", *arguments.split()],
        env={**os.environ, **dict([variable.split("=", 1)]), **state},
        capture_output=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert shape(json.loads(done.stdout)) == shape(json.loads(shown))


def test_there_are_examples_to_run() -> None:
    assert sum(len(blocks(page, "python", "pycon")) for page in PAGES) >= 5
