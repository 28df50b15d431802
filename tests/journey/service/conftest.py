"""A browser, and the page of a small service in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.looks import ARGS, CHROMIUM, PATIENCE_MS, Looks, need_browser, written
from support.page_data import everything
from support.page_jobs import HOSTILE, fill
from zeus.store.memory import MemoryStore


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, MemoryStore]]:
    need_browser()
    from support.live import live
    from zeus.service.app import Settings

    store = MemoryStore()
    fill(store, "speech")
    fill(store, HOSTILE, 2.0)
    with live(store, Settings(hosts=frozenset({"127.0.0.1"}))) as address:
        yield f"{address}/", store


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as session:
        one = session.chromium.launch(executable_path=CHROMIUM, args=ARGS, timeout=PATIENCE_MS)
        yield one
        one.close()


@pytest.fixture(scope="module")
def looks(browser: Any, served: tuple[str, MemoryStore], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looks]:
    made = Looks(browser, served[0], written(tmp_path_factory.mktemp("page"), everything()))
    yield made
    made.close()
