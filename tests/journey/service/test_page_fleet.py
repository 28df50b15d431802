"""The fleet, for who pays: by week, owner and GPU, and the jobs that need someone."""

from __future__ import annotations

from typing import Any

from support.looks import Look, Looks, opened, said, tiles
from support.page_data import everything, fleet

WEEKS = '[aria-label$="used and saved by week"].plot'


def shown(looks: Looks, **changed: Any) -> Look:
    """The page of a fleet, with these fields in place of others."""
    return opened(looks, {**everything(), "fleet": {**fleet(), **changed}}, "#/fleet")


def test_what_was_used_and_saved_is_told_with_its_error(looks: Looks) -> None:
    look = shown(looks)
    told = tiles(look.page)
    assert told["Energy used"] == "11.1 kWh\n40 recurrences"
    assert told["Energy saved"] == "2.5 ± 0.28 kWh"
    assert told["Money"] == "3.40 EUR\nsaved: 0.80 EUR"
    assert told["CO₂e"] == "3.6 kg\nsaved: 800 g"
    look.page.wait_for_selector(f"{WEEKS} .main-svg")
    used, saved = look.page.evaluate(f"document.querySelector('{WEEKS}').data")
    assert used["x"] == [f"2026-W0{n}" for n in range(1, 6)]
    assert max(used["y"]) == 40e6 / 3.6e6 and max(saved["error_y"]["array"]) == 1e6 / 3.6e6
    look.page.get_by_role("button", name="money").click()
    look.page.locator('[aria-label="money used and saved by week"].plot .main-svg').first.wait_for()
    assert max(look.page.evaluate(f"document.querySelector('{WEEKS}').data[0].y")) == 3.4
    assert look.wrong == []


def test_an_owner_leads_to_the_jobs(looks: Looks) -> None:
    look = shown(looks)
    page = look.page
    row = page.locator("section:has(h2:text-is('By owner')) tbody tr").first.inner_text()
    assert "nlp/alice" in row and "7.78 kWh" in row and "1.75 ± 0.19 kWh" in row and "2.38 EUR" in row
    assert page.get_by_text("without an owner").is_visible()
    page.locator("section:has(h2:text-is('By owner'))").get_by_role("link", name="nlp/alice").click()
    page.get_by_role("heading", level=1, name="Recurring jobs").wait_for()
    assert page.get_by_role("combobox", name="Owner", exact=True).input_value() == "nlp/alice"


def test_a_losing_job_is_found(looks: Looks) -> None:
    words = "used 5 % ± 1 % more energy (5.00 kJ ± 1.00 kJ, measured)"
    look = shown(looks, losing=[{"job": "speech", "owner": "nlp/alice", "sentence": words}])
    card = look.page.locator("section:has(h2:text-is('Jobs that lose'))")
    assert words in said(card)
    card.get_by_role("link", name="speech").click()
    look.page.get_by_role("heading", level=1, name="speech").wait_for()
    look.page.go_back()
    look.page.get_by_role("link", name="All losing jobs in the list").click()
    look.page.wait_for_function("location.hash === '#/?state=losing'")


def test_what_is_not_known_is_not_shown_as_nothing(looks: Looks) -> None:
    rates = ("money", "saved_money", "gco2e", "saved_gco2e")
    plain = fleet()
    for row in (plain["totals"], *plain["weeks"], *plain["owners"], *plain["gpus"]):
        row.update(dict.fromkeys(rates))
    look = shown(looks, **plain)
    assert {"Money", "CO₂e"}.isdisjoint(tiles(look.page))
    assert look.page.get_by_role("button", name="money").count() == 0
    assert look.page.get_by_role("columnheader", name="Money").count() == 0
    look = shown(looks, weeks=[], owners=[], gpus=[], losing=[], failing=[], idle=[], totals=None)
    assert "Nothing has run in these weeks." in look.page.locator("main").inner_text()
    assert look.wrong == []
