"""A virtual V100 on a virtual clock, with folders of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zeus.device.virtual import VirtualGpu, virtual_gpus

GPU = "v100?clock=virtual&load=resnet50"


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> VirtualGpu:
    for name in [n for n in os.environ if n.startswith("ZEUS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ZEUS_GPU", f"virtual:{GPU}")
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return virtual_gpus(GPU)[0]
