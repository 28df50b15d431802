"""Every message in docs/troubleshooting.md is one that the code prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from support.paths import ROOT, SOURCES

GAP = "…"  # what differs from case to case
ROW = re.compile(r"^\| `([^`|]+)` \|", re.MULTILINE)


def messages() -> list[str]:
    return ROW.findall((ROOT / "docs" / "troubleshooting.md").read_text())


def texts() -> Iterator[str]:
    """Every text in the sources, with a gap for what is filled in."""
    for file in [*SOURCES.rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Constant(value=str(text)):
                    yield re.sub(r"%(\.\w+|\w)", GAP, text)
                case ast.JoinedStr(values=parts):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in parts)


def test_every_message_is_printed_by_the_code() -> None:
    printed = "\n".join(texts())
    unknown = [one for one in messages() if not re.search(".*".join(map(re.escape, one.split(GAP))), printed)]
    assert unknown == []
    assert len(messages()) > 40
