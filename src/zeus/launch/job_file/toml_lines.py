"""Finds the line number of each key in a TOML file, for error messages. `tomllib` does not report it."""

from __future__ import annotations

import re

_TABLE = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""\s*((?:["']?[\w-]+["']?\s*\.\s*)*["']?[\w-]+["']?)\s*=""")
_LONG = re.compile(r'"""|\'\'\'')


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The line number, from 1, of each key and table by its path.

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
