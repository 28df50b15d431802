"""Places to test the keeper at, one per way of providing cards, and kinds of keeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.keeper_place import Place, inhabited, nvidia, virtual


@pytest.fixture(params=[virtual, nvidia], ids=lambda provide: provide.__name__)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from inhabited(request.param, request, monkeypatch)


@pytest.fixture(params=["private", "system"])
def kind(request: pytest.FixtureRequest, place: Place) -> str:
    if request.param == "system":
        place.serve()
    return str(request.param)
