"""The shape of the source tree: small folders, and names that mean one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

from support.paths import SOURCES

HOUSE = SOURCES / "zeus"
FILES = 15
LARGE = {"cli", "reproduce/figures"}  # one file a command, one a figure
EVERYWHERE = {"__init__.py", "__main__.py", "api.py"}  # a package's own; and each port's promises
ALIKE = {("paper", "structured")}  # two policies, built alike
SAME_CLASS = {"BatchSizeCallback", "EnergyCallback"}  # one for each framework


def modules(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.py")}


def packages(folder: Path) -> list[Path]:
    return sorted(one.parent for one in folder.glob("*/__init__.py"))


def every_folder() -> list[Path]:
    return [HOUSE, *(file.parent for file in HOUSE.rglob("__init__.py") if file.parent != HOUSE)]


def test_no_folder_is_too_large_to_look_through() -> None:
    sizes = {str(one.relative_to(HOUSE)): len(modules(one)) for one in every_folder()}
    assert {name: size for name, size in sizes.items() if size > FILES and name not in LARGE} == {}


def test_no_two_neighbouring_packages_have_a_file_of_one_name() -> None:
    clashes = []
    for folder in every_folder():
        beside = packages(folder)
        for i, one in enumerate(beside):
            for other in beside[i + 1 :]:
                if (one.name, other.name) not in ALIKE:
                    clashes += [(one.name, other.name, name) for name in modules(one) & modules(other) - EVERYWHERE]
    assert clashes == []


def test_a_class_name_has_one_meaning() -> None:
    where: dict[str, list[str]] = defaultdict(list)
    for file in HOUSE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(str(file.relative_to(HOUSE)))
    counted = Counter({name: len(files) for name, files in where.items()})
    assert {name: where[name] for name, n in counted.items() if n > 1 and name not in SAME_CLASS} == {}
