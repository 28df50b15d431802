"""docs/commands.md is what the commands say of themselves."""

from __future__ import annotations

import importlib.util

from support.paths import ROOT
from zeus.cli.main import COMMANDS


def test_the_page_of_commands_is_current() -> None:
    spec = importlib.util.spec_from_file_location("commands_page", ROOT / "docs" / "assets" / "commands_page.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = made.PAGE.read_text(encoding="utf-8")
    assert made.page() == page, "run `make docs`"
    assert all(f"\n## zeus {name}\n" in page for name in COMMANDS)
