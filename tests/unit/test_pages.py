"""Pages that name or show what is in the code are true: the picture of the concepts, and the files of the house."""

from __future__ import annotations

import importlib.util
import re

from support.paths import ROOT, SOURCES

FILE = re.compile(r"`([\w./]+/[\w.]*|[\w.]+\.py)`")


def test_the_picture_of_both_settings_is_current() -> None:
    spec = importlib.util.spec_from_file_location("tradeoffs", ROOT / "docs" / "assets" / "make_tradeoffs.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.picture() == made.FILE.read_text(encoding="utf-8"), "run `make docs`"
    shown = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert "the cost is least at 150 W" in shown and "the cost is least at 48 samples" in shown


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = set(FILE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    places = (SOURCES / "zeus", ROOT)
    assert [name for name in sorted(named) if not any((place / name).exists() for place in places)] == []
    assert len(named) > 20
