"""A virtual V100 on a virtual clock, with folders of its own."""

from __future__ import annotations

import pytest

from support.cards import RESNET, VirtualCards
from zeus.device.virtual import VirtualGpu


@pytest.fixture
def card(virtual_cards: VirtualCards) -> VirtualGpu:
    return virtual_cards(RESNET)[0]
