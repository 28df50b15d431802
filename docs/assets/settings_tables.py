"""Writes the tables of settings into `docs/reference.md`, from the settings themselves. `make docs` runs this.

python docs/assets/settings_tables.py
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from zeus.launcher_env import LauncherEnv
from zeus.settings import SETTINGS

PAGE = Path(__file__).parents[1] / "reference.md"
TABLE = re.compile(r"(<!-- table of (settings|launcher) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with its tables as they must be."""
    tables = {"settings": settings_table, "launcher": launcher_table}
    return TABLE.sub(lambda found: f"{found[1]}\n{tables[found[2]]()}\n{found[3]}", page)


def settings_table() -> str:
    rows = [
        (code(one.variable), _key(one.path) if one.in_files else "", code(one.default_text), one.about)
        for one in SETTINGS
    ]
    return _table(("variable", "key in a file", "default", "meaning"), rows)


def launcher_table() -> str:
    variables = [one.metadata for one in dataclasses.fields(LauncherEnv)]
    return _table(("variable", "meaning"), [(code(one["variable"]), one["about"]) for one in variables])


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _key(path: tuple[str, ...]) -> str:
    *table, key = path
    return " ".join([*(f"`[{one}]`" for one in table), f"`{key}`"])


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |").replace("|  |", "| |") for line in lines)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
