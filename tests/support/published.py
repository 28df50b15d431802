"""Helpers for tests on the published traces: their folder, and the benchmarks as modules."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from support.paths import ROOT
from zeus.reproduce.study import ORDER
from zeus.simulate.traces import rows
from zeus.simulate.traces.published import gpus

TRACES = rows.published(ROOT)

needs_traces = [
    pytest.mark.data,
    pytest.mark.skipif(
        not TRACES.is_dir(),
        reason=f"the published traces are not in {TRACES}; set ZEUS_DATA to the folder that holds nsdi23_traces",
    ),
]

_ABSENT = [card for card in ORDER if card not in gpus(TRACES)]
needs_every_card = pytest.mark.skipif(
    bool(_ABSENT), reason=f"{TRACES} has no summary_power_GPU.csv of {', '.join(_ABSENT)}"
)


def benchmark(name: str) -> ModuleType:
    """The benchmark of this name, imported."""
    folder = str(ROOT / "benchmarks")
    if folder not in sys.path:
        sys.path.append(folder)  # for what they share
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module
