"""The page in a real browser: it is loaded once, and looked at many times."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.page_data import everything
from support.paths import ROOT
from support.waiting import PATIENCE_SECONDS, eventually

CHROMIUM = shutil.which("chromium")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 1000 * PATIENCE_SECONDS  # as the browser counts


def need_browser() -> None:
    """Skip the test where Playwright, the service or Chromium is missing."""
    pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    pytest.importorskip("fastapi", reason="needs the service extra: pip install 'zeus-energy[service]'")
    pytest.importorskip("uvicorn", reason="needs the service extra: pip install 'zeus-energy[service]'")
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")


AXE = ROOT / "node_modules/axe-core/axe.min.js"


def serious(page: Any) -> list[tuple[str, str]]:
    """What axe-core finds in the page as it is now: rules with the first element that breaks each."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document)")["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


class Look:
    """A page that notes what went wrong in it, and what it asked of others. Its clock can be put forward."""

    def __init__(self, browser: Any, **kind: Any) -> None:
        self.context = browser.new_context(**kind)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.page.clock.install()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def go(self, place: str) -> None:
        """To a place of the same page, without loading it again."""
        self.page.evaluate(MOVE, place)
        self.page.get_by_role("heading", level=1).wait_for()

    def show(self, data: dict[str, Any], place: str = "#/job/speech") -> None:
        """The same page over other data, where it was loaded from a file."""
        self.page.evaluate(REPLACE, data)
        self.go(place)

    def until(self, is_so: Callable[[], bool]) -> None:
        """Let seconds pass until it is so."""

        def beat() -> bool:
            self.page.clock.fast_forward(BEAT_MS)
            return is_so()

        eventually(beat, lambda: self.page.locator("main").inner_text())


# What is shown goes first, so that nothing of it is taken for what comes.
MOVE = """place => {
  document.querySelector("main").replaceChildren();
  history.replaceState(null, "", place);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}"""
REPLACE = """data => {
  for (const name of Object.keys(ZEUS_DATA)) delete ZEUS_DATA[name];
  Object.assign(ZEUS_DATA, data);
}"""
BEAT_MS = 3000  # between two looks of the page at what has changed
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
KINDS: dict[str, dict[str, Any]] = {
    "desk": DESK,
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    "dark": {**DESK, "color_scheme": "dark"},
}


class Looks:
    """Pages that are loaded once, and kept: that takes longer than all that is looked at."""

    def __init__(self, browser: Any, address: str, file: str) -> None:
        self._browser, self._address, self._file = browser, address, file
        self._kept: dict[tuple[str, str], Look] = {}

    def served(self, kind: str = "desk") -> Look:
        """The list of jobs, from the service."""
        look = self._of(self._address, kind)
        look.page.set_viewport_size(KINDS[kind]["viewport"])
        look.go("#/")
        return look

    def file(self, kind: str = "desk") -> Look:
        """The page of a file, as wide as on such a screen, whose data a test replaces."""
        look = self._of(self._file, "desk")
        look.page.set_viewport_size(KINDS[kind]["viewport"])
        return look

    def close(self) -> None:
        """Leave none open: the service would wait for it."""
        for look in self._kept.values():
            look.context.close()

    def _of(self, address: str, kind: str) -> Look:
        if (address, kind) not in self._kept:
            look = self._kept[address, kind] = Look(self._browser, **KINDS[kind])
            if address == self._file:
                look.page.goto(address)
            else:
                with look.page.expect_response("**/api/v1/me"):
                    look.page.goto(address)
            look.page.get_by_role("heading", level=1).wait_for()
        else:
            self._kept[address, kind].wrong.clear()
        return self._kept[address, kind]


def opened(looks: Looks, data: dict[str, Any], place: str = "#/job/speech") -> Look:
    """The page over this data."""
    look = looks.file()
    look.show(data, place)
    return look


def visited(looks: Looks, jobs: dict[str, dict[str, Any]], *, kind: str = "desk") -> Iterator[tuple[str, Any]]:
    """The page of one job after the other, each the usual one but for these fields; nothing else is drawn."""
    data = everything()
    brief, full = data["jobs"][0], {**data["full"]["speech"], "history": [], "points": [], "tries": []}
    data["jobs"] = [{**brief, **changed, "job": name} for name, changed in jobs.items()]
    data["full"] = {name: {**full, **changed, "job": name} for name, changed in jobs.items()}
    look = looks.file(kind)
    look.show(data, "#/")
    for name in jobs:
        look.go(f"#/job/{quote(name, safe='')}")
        assert look.page.get_by_role("heading", level=1).inner_text() == name
        yield name, look.page
        assert look.wrong == []


def written(folder: Path, data: dict[str, Any]) -> str:
    """The address of a file that is the page over this data."""
    from zeus.service.dashboard.export import embed

    file = folder / "page.html"
    file.write_text(embed(data), encoding="utf-8")
    return file.as_uri()


def tiles(page: Any) -> dict[str, str]:
    """What the tiles of the page say, by name."""
    found = page.locator(".tiles .tile")
    told = [said(one) for one in found.locator("dd").all()]
    return dict(zip(found.locator("dt").all_inner_texts(), told, strict=True))


def said(locator: Any) -> str:
    """What an element says. Where a line may not break counts as a space."""
    return str(locator.inner_text()).replace("\u00a0", " ")
