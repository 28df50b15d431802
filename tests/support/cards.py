"""Virtual cards of one test, with a keeper and folders of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from zeus.device.virtual import VirtualGpu, virtual_gpus

RESNET = "v100?clock=virtual&load=resnet50"
RESNET_X2 = "v100x2?clock=virtual&load=resnet50"
VirtualCards: TypeAlias = Callable[[str], list[VirtualGpu]]


@pytest.fixture
def virtual_cards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> VirtualCards:
    """Makes the cards that a text such as `v100x2?clock=virtual` describes. Nothing else of Zeus is set."""

    def make(text: str) -> list[VirtualGpu]:
        for name in [n for n in os.environ if n.startswith("ZEUS_") and n != "ZEUS_CONFIG"]:
            monkeypatch.delenv(name)
        for name in ("CUDA_VISIBLE_DEVICES", "WORLD_SIZE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ZEUS_GPU", f"virtual:{text}")
        monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(tmp_path / "cards"))
        monkeypatch.setenv("ZEUS_KEEPER_STATE", str(tmp_path / "keeper"))
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        return virtual_gpus(text)

    return make
