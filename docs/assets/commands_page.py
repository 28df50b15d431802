"""Writes `docs/commands.md` from the commands' own help. `make docs` runs this.

python docs/assets/commands_page.py
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from zeus.cli.main import zeus

PAGE = Path(__file__).parents[1] / "commands.md"
SHARED_FROM = 3  # an option that so many commands have, with one meaning, is explained once at the top
HEAD = """\
# Commands

What `zeus COMMAND --help` prints; `make docs` makes this page from the commands. [Exit codes and JSON](reference.md)
are on another page.

## Options that many commands have

| option | meaning |
| --- | --- |
"""


def page() -> str:
    """The page as it must be."""
    with click.Context(zeus, info_name="zeus") as context:
        commands = [(command, inner, _rows(command, inner)) for command, inner in _commands(zeus, context)]
        counted = Counter(row for *_, rows in commands for row in rows)
        first = {row[0]: row for row, _ in reversed(counted.most_common())}  # the most common meaning of each option
        shared = [row for row, times in counted.items() if times >= SHARED_FROM and first[row[0]] == row]
        where: dict[
            tuple[str, ...], str
        ] = {}  # in which section an option of a command and its subcommands is explained
        for _, inner, rows in commands:
            for row in rows:
                where.setdefault((_top(inner), *row), "" if row in shared else inner.command_path)
        return HEAD + "".join(f"{_line(row)}\n" for row in shared) + "".join(_section(*one, where) for one in commands)


def _top(context: click.Context) -> str:
    """The command of `zeus` to which a command belongs."""
    return context.command_path.split()[1]


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with click.Context(command, parent=context, info_name=name) as inner:
            yield command, inner
            if isinstance(command, click.Group):
                yield from _commands(command, inner)


def _rows(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Each option and its meaning."""
    records = [one.get_help_record(context) for one in command.get_params(context)]
    return [(_cell(row[0]), _cell(row[1])) for row in records if row and row[1] and "--help" not in row[0]]


def _section(
    command: click.Command, context: click.Context, rows: list[tuple[str, str]], where: dict[tuple[str, ...], str]
) -> str:
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    places: dict[str, list[tuple[str, str]]] = {}
    for row in rows:
        places.setdefault(where[_top(context), *row], []).append(row)
    own = [_line(row) for row in places.pop(context.command_path, [])]
    table = ["", "| option | meaning |", "| --- | --- |", *own] if own else []
    names = {at: ", ".join(f"`{row[0]}`" for row in some).replace("\\|", "|") for at, some in places.items()}
    also = [f"{some} (as for `{at}`)" if at else some for at, some in names.items()]
    more = ["", f"Also: {'; '.join(also)}."] if also else []
    shown = ["", f"`{usage}`"] if not usage.endswith("[OPTIONS]") else []
    return "\n".join(["", f"{level} {context.command_path}", *shown, "", _text(text), *table, *more, ""])


def _line(row: tuple[str, str]) -> str:
    return f"| `{row[0]}` | {row[1]} |"


def _text(help_text: str) -> str:
    """A paragraph whose lines click keeps (it begins with \\b) becomes a block of text."""
    paragraphs = help_text.split("\n\n")
    return "\n\n".join(f"```text\n{one[2:]}\n```" if one.startswith("\b\n") else one for one in paragraphs)


def _cell(text: str) -> str:
    text = text.replace("INTEGER RANGE", "N").replace("INTEGER", "N").replace("FLOAT RANGE", "X").replace("FLOAT", "X")
    return text.replace("|", "\\|").replace("  [", " [")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
