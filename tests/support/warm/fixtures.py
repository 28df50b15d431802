"""Fixtures that let the Python programs of a test start in milliseconds.

With `warm`, `warm_torch` or `warm_frameworks`, `sys.executable`, and `python` on the PATH of a `Place`, is the stand-in
that starts copies. A test whose subject is a process itself (its signals, terminal, end, memory or imports) does
without.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from support.warm import REAL, Warm

_warm: Warm | None = None


def warm_here() -> Warm:
    """The one of this run of tests, shared by all its workers."""
    global _warm
    if _warm is None:
        owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        folder = Path(tempfile.gettempdir()) / f"zeus-warm-{os.getuid()}-{owner}"
        folder.mkdir(mode=0o700, exist_ok=True)
        _warm = Warm(folder, owner)
    return _warm


def _use(kind: str, patch: pytest.MonkeyPatch) -> None:
    if shutil.which("gcc") is None:
        return  # programs start as everywhere else, which takes longer
    patch.setenv("WARM_PYTHON", warm_here().address(kind))
    patch.setattr(sys, "executable", str(warm_here().python))


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus imported."""
    _use("zeus", monkeypatch)


@pytest.fixture
def cold(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start as everywhere else, though those of other tests in its file do not."""
    for name in {"warm", "warm_torch", "warm_frameworks"} & {*request.fixturenames}:
        request.getfixturevalue(name)
    monkeypatch.delenv("WARM_PYTHON", raising=False)
    monkeypatch.setattr(sys, "executable", REAL)


@pytest.fixture
def warm_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus and PyTorch imported."""
    _use("torch", monkeypatch)


@pytest.fixture
def warm_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test start with Zeus, PyTorch, Hugging Face and Lightning imported."""
    _use("frameworks", monkeypatch)
