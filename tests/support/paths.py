"""Paths within the project."""

from pathlib import Path

import zeus

ROOT = Path(__file__).parents[2]
SOURCES = Path(zeus.__file__).parents[1]
TESTS = ROOT / "tests"
EXAMPLES = ROOT / "examples"
GOLDEN_FILES = TESTS / "golden" / "files"
