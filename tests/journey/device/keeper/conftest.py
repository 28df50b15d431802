"""Places to test the keeper at, one per way of providing cards, and kinds of keeper."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.keeper_place import Place, inhabitants, nvidia, virtual
from support.paths import SOURCES
from support.waiting import eventually


@pytest.fixture(params=[virtual, nvidia], ids=lambda provide: provide.__name__)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="zeus-keeper-"))  # pytest's own are too deep for the name of a socket
    for name in ("ZEUS_KEEPER", "ZEUS_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(folder / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(folder / "notes"))
    place: Place = request.param(folder, request)
    for name in ("ZEUS_GPU", "LD_LIBRARY_PATH"):  # for the private keepers and commands of this process
        if name in place.env:
            monkeypatch.setenv(name, place.env[name])
    place.env = {**os.environ, **place.env, "PYTHONPATH": str(SOURCES)}
    yield place
    for process in place.running:
        process.kill()
        process.communicate()
    try:
        eventually(lambda: not place.notes() and not inhabitants(folder))
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["private", "system"])
def kind(request: pytest.FixtureRequest, place: Place) -> str:
    if request.param == "system":
        place.serve()
    return str(request.param)
