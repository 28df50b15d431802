"""Every Python example of README.md and docs/ runs, on a virtual GPU; every command and link in them exists.

```pycon blocks are doctests, ```python blocks are run as they stand. The blocks of a page share their names, in order.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from zeus.cli.main import COMMANDS

ROOT = Path(__file__).parents[2]
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


def test_there_are_examples_to_run() -> None:
    assert sum(len(blocks(page, "python", "pycon")) for page in PAGES) >= 5
