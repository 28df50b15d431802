"""Writes `docs/commands.md` from the commands' own help. `make docs` runs this.

python docs/assets/commands_page.py
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from zeus.cli.main import zeus

PAGE = Path(__file__).parents[1] / "commands.md"
HEAD = """\
# Commands

What `zeus --help` and `zeus COMMAND --help` print. `make docs` makes this page from the commands. [Exit codes and
JSON](reference.md) are on another page.
"""


def page() -> str:
    """The page as it must be."""
    with click.Context(zeus, info_name="zeus") as context:
        return HEAD + "".join(_section(command, inner) for command, inner in _commands(zeus, context))


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        with click.Context(command, parent=context, info_name=name) as inner:
            yield command, inner
            if isinstance(command, click.Group):
                yield from _commands(command, inner)


def _section(command: click.Command, context: click.Context) -> str:
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = inspect.cleandoc(command.help or "").partition("\f")[0]
    records = [one.get_help_record(context) for one in command.get_params(context)]
    rows = [f"| `{_cell(row[0])}` | {_cell(row[1])} |" for row in records if row and row[1] and "--help" not in row[0]]
    table = ["", "| option | meaning |", "| --- | --- |", *rows] if rows else []
    return "\n".join(["", f"{level} {context.command_path}", "", f"`{usage}`", "", _text(text), *table, ""])


def _text(help_text: str) -> str:
    """A paragraph whose lines click keeps (it begins with \\b) becomes a block of text."""
    paragraphs = help_text.split("\n\n")
    return "\n\n".join(f"```text\n{one[2:]}\n```" if one.startswith("\b\n") else one for one in paragraphs)


def _cell(text: str) -> str:
    text = text.replace("INTEGER RANGE", "N").replace("INTEGER", "N").replace("FLOAT RANGE", "X").replace("FLOAT", "X")
    return text.replace("|", "\\|").replace("  [", " [")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
