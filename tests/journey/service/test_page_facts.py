"""What the page says of a job: numbers, units, and what is not known."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest

from support.looks import Looks, opened, said, tiles, visited
from support.page_data import COMMAND, SAVED, everything, saving


def test_the_settings_of_a_job_are_shown(looks: Looks) -> None:
    page = opened(looks, everything()).page
    card = page.locator("section:has(h2:text-is('Settings'))")
    facts = dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
    assert facts == {
        "Target": "metric at most 0.31\nlower is better",
        "Max epochs": "40",
        "η (eta)": "0.5\n1: only energy counts; 0: only time",
        "β (beta)": "2\na run may cost this many times the best one",
        "Window": "the last 10 runs of each size",
        "Batch sizes": "64, 128, 256",
        "Default batch size": "64",
        "Power limits": "250 W, 200 W, 150 W",
        "Policy": "structured, version 3",
        "Revision": "2, since 2026-03-01 08:00 UTC",
    }
    assert card.get_by_label("Command").inner_text() == COMMAND


@pytest.mark.parametrize("kind", ["desk", "phone"])
def test_recurrences_are_counted_in_whole_numbers(kind: str, looks: Looks) -> None:
    jobs = {str(most): everything(most)["full"]["speech"] for most in (1, 2, 3, 8, 40)}
    for name, page in visited(looks, jobs, kind=kind):
        page.wait_for_selector(".plot .main-svg")
        for plot in ("Cost of", "Energy of"):
            ticks = page.locator(f'[aria-label^="{plot}"] .xtick text').all_text_contents()
            assert ticks and len(set(ticks)) == len(ticks)
            assert all(tick.isdecimal() and 1 <= int(tick) <= max(2, int(name)) for tick in ticks)
        ticks = page.locator('[aria-label^="Batch sizes and power limits"] .cbaxis text').all_text_contents()
        assert ticks and all(tick.isdecimal() for tick in ticks)


SAVINGS = {
    SAVED: {},
    "used 17 % ± 1 % more energy (17.0 kJ ± 1.20 kJ, measured)": {"joules": -17e3, "share": -0.172},
    "no difference seen (+900 J ± 1.20 kJ, measured)": {"joules": 900.0, "share": 0.009},
}


def test_a_saving_is_told_with_what_it_rests_on(looks: Looks) -> None:
    savings = {words: {**saving(), **changed, "sentence": words} for words, changed in SAVINGS.items()}
    jobs = {words: {"saving": found, "recent_saving": found} for words, found in savings.items()}
    page = None
    for sentence, page in visited(looks, jobs):
        assert tiles(page)["Saved energy"].split("\n")[0] == sentence
        assert tiles(page)["Latest recurrences"].split("\n")[0] == sentence
    assert page is not None
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("heading", level=1, name="Recurring jobs").wait_for()
    for row in page.locator("tbody tr").all():
        name = row.locator("td.name").inner_text()
        assert said(row.locator("td.words")) == name


DEFAULTS = {
    "104 kJ and 10 min per run (measured, ±1.5 kJ), 3 runs measured": {},
    "104 kJ and 10 min per run (estimated, ±1.5 kJ)": {"basis": "estimated", "runs_measured": 0},
    "104 kJ and 10 min per run (as it ran: the default's power limits are not known)": {
        "basis": "as_it_ran",
        "joules_error": None,
        "runs_measured": 0,
    },
}


def test_the_default_says_what_it_rests_on(looks: Looks) -> None:
    usual = everything()["full"]["speech"]["default"]
    jobs = {words: {"default": {**usual, **changed}} for words, changed in DEFAULTS.items()}
    for words, page in visited(looks, jobs):
        assert tiles(page)["Default"] == f"batch size 64 at 250 W\n{words}"


ENERGIES = {
    "0 J": 0.0,
    "12.3 J": 12.345,
    "999 J": 999.4,
    "1 kJ": 999.6,
    "45.7 kJ": 45_678.0,
    "359 kJ": 359_000.0,
    "0.1 kWh": 360_000.0,
    "1.5 kWh": 5.4e6,
    "343 kWh": 1.234e9,
    "1.25 MWh": 4.5e9,
    "unknown": None,
}


def test_energy_is_told_in_units_that_people_use(looks: Looks) -> None:
    jobs = {words: {"joules": joules} for words, joules in ENERGIES.items()}
    for words, page in visited(looks, jobs):
        assert tiles(page)["Energy used"] == f"{words}\nV100"


def test_money_is_told_as_people_tell_it(looks: Looks) -> None:
    told: dict[str, tuple[Any, ...]] = {
        "some": (0.4213, "Saved money", "0.42 EUR"),
        "hardly any": (-6.14e-7, "Extra money", "less than 0.01 EUR"),
        "more than the default": (-12.5, "Extra money", "12.50 EUR"),
        "much": (12_345.6, "Saved money", "12346 EUR"),
        "with its error": (0.4213, "Saved money", "0.42 ± 0.02 EUR", 0.0231),
        "with a small error": (0.4213, "Saved money", "0.421 ± 0.001 EUR", 0.00123),
        "with a large error": (-0.003, "Extra money", "0.00 ± 0.01 EUR", 0.0121),
    }
    jobs = {}
    for job, (money, _, _, *error) in told.items():
        sign = -1 if money < 0 else 1
        amounts = {"money": money, "money_error": error[0] if error else None}
        jobs[job] = {"saving": {**saving(), **amounts, "joules": sign * 43.7e3}}
    for job, page in visited(looks, jobs):
        _, name, words, *_ = told[job]
        assert tiles(page)[name] == words


def test_money_is_not_claimed_where_no_difference_is_seen(looks: Looks) -> None:
    data = everything()
    data["full"]["speech"]["saving"] = {**saving(), "joules_error": 30e3, "difference_seen": False}
    assert not {"Saved money", "Extra money", "Saved CO₂e"} & set(tiles(opened(looks, data).page))


def test_what_was_used_is_told_as_money_and_carbon_and_an_unknown_part_is_said(looks: Looks) -> None:
    data = everything()
    data["full"]["speech"] |= {"joules": 7.2e6, "unknown_tries": 0}
    whole = {"kwh": 2.0, "money": 0.6, "known_money": 0.6, "money_covers": 1.0, "currency": "EUR", "hours_by": "curve"}
    grams = {"gco2e": None, "known_gco2e": 400.0, "gco2e_covers": 0.5}
    data["full"]["speech"]["footprint"] = {**whole, **grams}
    told = tiles(opened(looks, data).page)["Energy used"]
    part = "400 g CO₂e for 50 % of it (the intensity of the rest is unknown)"
    assert told == f"2 kWh\nV100\n2 kWh, 0.60 EUR, {part}"
    data["full"]["speech"]["footprint"] |= {"gco2e": None, "known_gco2e": None, "gco2e_covers": 0.0, "hours_by": "time"}
    told = tiles(opened(looks, data).page)["Energy used"]
    assert told.endswith("0.60 EUR, CO₂e unknown; the energy of an hour is estimated from the time")


def test_running_trials_are_listed_before_anything_else(looks: Looks) -> None:
    look = opened(looks, everything())
    card = look.page.get_by_role("region", name="Trial 9 is running")
    shown = card.inner_text()
    for words in ("Recurrence 8, attempt 2", "128", "4 of at most 40", "0.35", "target: at most 0.31", "61.5 kJ"):
        assert words in shown
    assert tiles(look.page)["Batch size now"] == "128\nnext: 64"
    tops = look.page.evaluate("['.card.now', '.tiles'].map(s => document.querySelector(s).getBoundingClientRect().top)")
    assert tops[0] < tops[1]
    look.page.get_by_role("link", name="Jobs").click()
    assert "batch size 128, epoch 4, 61.5 kJ" in look.page.get_by_role("row", name="speech").inner_text()


def test_costs_of_a_profile_are_those_of_the_service(looks: Looks) -> None:
    curves = "document.querySelector('[aria-label^=\"Power profiles\"]').data.map(t => [t.x, t.y, t.marker.size])"
    page = opened(looks, everything()).page
    page.wait_for_selector('[aria-label^="Power profiles"] .main-svg')
    assert page.evaluate(curves) == [[[150, 200, 250], [1.25, 1, 1.5], [5, 13, 5]]]  # that of 128 has no costs
    data = everything()
    for row in data["profiles"]["speech"]:
        row.pop("costs", None)
    look = opened(looks, data)
    look.page.get_by_text("The cost of a step is not known for these profiles.").wait_for()
    assert look.page.locator('[aria-label^="Power profiles"]').count() == 0
    assert look.wrong == []


def test_a_recurrence_is_set_against_the_default_of_its_time(looks: Looks) -> None:
    page = opened(looks, everything(4)).page
    page.wait_for_selector('[aria-label^="Energy of"] .main-svg')
    lines = page.evaluate("document.querySelector('[aria-label^=\"Energy of\"]').data.map(t => [t.name, t.y])")
    assert lines == [["used", [104, 60, 60, 60]], ["default", [None, 104, 104, 104]]]


def test_a_trial_tells_where_it_ran_and_how_far_beyond_its_bound(looks: Looks) -> None:
    page = opened(looks, everything()).page
    row = page.locator("section:has(h2:text-is('Trials')) tbody tr").nth(1).inner_text()
    for words in ("2 x V100", "200 W (95 %), 250 W (3.3 %), 1 other", "cost limit 200 kJ", "1.5 kJ over it", "η 0.5"):
        assert words in row


def test_the_summary_tells_time_and_error(looks: Looks) -> None:
    look = opened(looks, everything(), place="#/")
    told = tiles(look.page)["Saved energy"]
    assert told == f"{SAVED}\nknown for 1 of 2 jobs"


NEW = ("basis", "joules_error", "seconds_error", "difference_seen", "runs_measured", "running", "costs")
NEW += ("eta", "gpus", "limits", "overshoot", "default_joules", "default_seconds", "default_basis")
NEW += ("saved_seconds", "saved_joules_error", "sentence", "saved_sentence")


@pytest.mark.parametrize("as_null", [False, True], ids=["missing", "null"])
def test_data_of_an_older_service_is_shown_all_the_same(as_null: bool, looks: Looks) -> None:
    def older(value: Any) -> Any:
        if isinstance(value, list):
            return [older(one) for one in value]
        if not isinstance(value, dict):
            return value
        kept = {name: older(one) for name, one in value.items() if name not in NEW}
        return {**kept, **dict.fromkeys(value.keys() & set(NEW))} if as_null else kept

    look = opened(looks, older(everything()))
    places = {
        "#/job/speech": "speech",
        "#/": "Recurring jobs",
        "#/compare?job=speech&job=speech": "2 jobs side by side",
    }
    for place, name in places.items():
        look.go(place)
        look.page.get_by_role("heading", level=1, name=name).wait_for()
        shown = said(look.page.locator("main"))
        assert "+43.7 kJ" in shown  # the sentence is the service's
        assert "undefined" not in shown and "NaN" not in shown and "null" not in shown
    assert look.wrong == []


def test_lines_of_the_script_fit_on_a_screen() -> None:
    from zeus.service.dashboard.page import MODULES, read

    for name in MODULES:
        lines = read(name).splitlines()
        assert (name, [line for line in lines if len(line) > 120]) == (name, [])
        assert len(lines) <= 350, name


def test_the_page_in_one_file_holds_every_module() -> None:
    from zeus.service.dashboard.export import embed
    from zeus.service.dashboard.page import MODULES

    folder = resources.files("zeus.service.dashboard").joinpath("static")
    assert sorted(one.name for one in folder.iterdir() if one.name.endswith(".js")) == sorted(MODULES)
    script = embed({}).rpartition("<script>")[2]
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
