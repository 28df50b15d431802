"""The sdist and the wheel of this checkout, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.environments import skip_without_index
from support.paths import ROOT
from support.waiting import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist, and the wheel that was built from it."""
    pytest.importorskip("build", reason="needs `pip install build`")
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", folder, ROOT],
        capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    skip_without_index(done.returncode, done.stdout + done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
