"""The page for everybody: axe-core finds nothing serious, no view is wider than a phone, and "Live" is true."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.live import live
from support.looks import AXE, DESK, KINDS, Look, Looks, serious
from support.page_data import everything, fleet
from support.page_jobs import fill
from support.paths import ROOT
from zeus.store.memory import MemoryStore

VIEWS = {
    "list": "#/",
    "job": "#/job/speech?trial=7",
    "compare": "#/compare?job=speech&job=speech&job=speech",
    "fleet": "#/fleet",
    "wrong": "#/job/unknown",
}


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install")
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing_serious(kind: str, looks: Looks) -> None:
    look = looks.file(kind)
    look.page.emulate_media(color_scheme="dark" if kind == "dark" else "light")
    look.show(with_fleet(), "#/")
    for name, place in VIEWS.items():
        look.page.evaluate("place => { location.hash = place }", place)
        look.page.locator("main h1, main [role=alert]").first.wait_for()
        if look.page.locator(".plot").count():
            look.page.wait_for_selector(".plot .main-svg")
        assert (name, serious(look.page)) == (name, [])
    look.page.emulate_media(color_scheme=None)


@pytest.mark.parametrize("place", VIEWS.values())
def test_no_view_is_wider_than_a_phone(place: str, looks: Looks) -> None:
    look = looks.file("phone")
    look.show(with_fleet(), "#/")
    look.page.evaluate("place => { location.hash = place }", place)
    look.page.locator("main h1, main [role=alert]").first.wait_for()
    assert look.page.evaluate("document.documentElement.scrollWidth") <= KINDS["phone"]["viewport"]["width"]
    cut = look.page.evaluate(CUT)
    assert cut == []


# What lies beyond the right edge of the screen, and is not inside something that scrolls.
CUT = """() => [...document.querySelectorAll("main *")]
  .filter(e => !e.closest("svg, pre, .scroll, .main-svg") && e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 80))"""


def test_live_is_shown_only_while_the_service_answers(browser: Any) -> None:
    store = MemoryStore()
    fill(store, "speech")
    with live(store) as address:
        look = Look(browser, **DESK)
        look.page.goto(f"{address}/")
        status = look.page.get_by_role("status")
        look.page.get_by_role("link", name="speech").wait_for()
        assert status.inner_text() == "Live"
        look.context.set_offline(True)
        look.until(lambda: status.inner_text().startswith("not live: no answer since "))
        look.context.set_offline(False)
        look.until(lambda: status.inner_text() == "Live")
        look.context.set_offline(True)
        look.go("#/job/speech")
        assert "This cannot be shown" in look.page.locator("main").inner_text()
        assert status.inner_text().startswith("not live")
        look.context.set_offline(False)
        look.until(look.page.get_by_role("heading", name="speech").is_visible)
        assert status.inner_text() == "Live"
        look.go("#/job/unknown")
        look.page.get_by_text("job 'unknown' is not in this store").first.wait_for()
        assert status.inner_text() == "Live"  # the service has answered
    look.context.close()


def with_fleet() -> dict[str, Any]:
    data = everything()
    return {**data, "fleet": fleet()}


def test_the_checker_is_one_exact_version_and_is_not_shipped() -> None:
    package = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    shipped = Path(ROOT / "src/zeus/service/dashboard/static").iterdir()
    assert not [one.name for one in shipped if "axe" in one.name]
