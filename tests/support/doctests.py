"""Doctests of the package, without an import of what has none."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Collect no doctests from a file without one.

    To look for them pytest imports the file: all of Zeus, and with it PyTorch and Ray, once in each worker.
    """
    found = yield
    if file_path.suffix == ".py" and ">>>" not in file_path.read_text("utf-8"):
        return [collector for collector in found if type(collector) is pytest.Module]
    return found
