"""Checks a TOML file against the keys that it may have. All mistakes are collected, each with its line number."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_type_hints

from zeus.errors import InputError, suggest

Kind = tuple[Callable[[Any], object], str]  # whether a value is right, and what to give instead

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:["']?[\w-]+["']?\s*\.\s*)*["']?[\w-]+["']?)\s*=""")
_LONG = re.compile(r'"""|\'\'\'')


class TomlReader:
    """Collects the mistakes of one file.

    Args:
        name: The file's name, for messages.
        text: Its text.
        top: The keys outside tables.
        secret: Keys whose values are not shown, such as `env` or `table.key`.
    """

    def __init__(self, name: str, text: str, top: Mapping[str, Kind], secret: Collection[str] = ()) -> None:
        self._name = name
        self._lines = key_lines(text)
        self._top = top
        self._secret = secret
        self._wrong: list[tuple[int, str]] = []

    def _check(self, data: Mapping[str, Any], known: Mapping[str, Kind], *table: str) -> None:
        """Check the keys of a table, or of the file outside tables."""
        for key, value in data.items():
            if key not in known:
                self._blame((*table, key), self._unknown(key, known, ".".join(table)))
            elif not known[key][0](value):
                what = key if ".".join((*table, key)) in self._secret else f"{key} = {shown(value)}"
                self._blame((*table, key), f"{what}: give {known[key][1]}.")

    def _unknown(self, key: str, known: Mapping[str, Kind], table: str) -> str:
        if table and key in self._top:
            return f"{key} is below [{table}] and so belongs to that table: move it above the first [table]."
        where = f"{key} is not known in [{table}]" if table else f"{key} is not known"
        return f"{where}. {suggest(key, known)}"

    def _line(self, path: tuple[str, ...]) -> int:
        """The line of a key, or of the nearest table around it. 0 if unknown."""
        return next((self._lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self._lines), 0)

    def _blame(self, path: tuple[str, ...], what: str) -> None:
        self._say(self._line(path), what)

    def _say(self, line: int, what: str) -> None:
        self._wrong.append((line, what))

    def _mistakes(self, since: int = 0) -> list[str]:
        """All mistakes so far but the first `since`, in the order of their lines."""
        ordered = sorted(self._wrong[since:], key=lambda one: one[0])
        return [f"{self._name}{f', line {line}' if line else ''}: {it}" for line, it in ordered]

    def _raise(self) -> None:
        if self._wrong:
            raise InputError("\n".join(self._mistakes()))


def kinds_of(table: type[Any]) -> dict[str, Kind]:
    """The keys of a table and what each may hold, from a dataclass whose fields are `Annotated[type, kind]`."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(table, include_extras=True).items()}


def shown(value: Any) -> str:
    """A value as TOML writes it, or nearly so."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line number, from 1, of each key and table by its path. `tomllib` does not report it.

    >>> key_lines('name = "a"\\n[env]\\nX.Y = 1')
    {('name',): 1, ('env',): 2, ('env', 'X', 'Y'): 3, ('env', 'X'): 3}
    """
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    inside = ""  # the quotes of a text over several lines
    for number, line in enumerate(text.splitlines(), 1):
        if not inside:
            if head := _TABLE.match(line):
                table = _path(head[1])
                lines.setdefault(table, number)
            elif key := _KEY.match(line):
                path = (*table, *_path(key[1]))
                for depth in range(len(path), len(table), -1):
                    lines.setdefault(path[:depth], number)
        for quotes in _LONG.findall(line):
            inside = quotes if not inside else "" if quotes == inside else inside
    return lines


def _path(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.split("."))
