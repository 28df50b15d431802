"""The picture in docs/concepts.md is what its script draws."""

from __future__ import annotations

import importlib.util

from support.paths import ROOT


def test_the_picture_of_both_settings_is_current() -> None:
    spec = importlib.util.spec_from_file_location("tradeoffs", ROOT / "docs" / "assets" / "make_tradeoffs.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert made.picture() == made.FILE.read_text(encoding="utf-8"), "run `make docs`"
    shown = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    assert "the cost is least at 150 W" in shown and "the cost is least at 48 samples" in shown
