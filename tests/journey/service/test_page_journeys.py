"""What people do on the page of a team's service: each signs in with a token of their own."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.live import live
from support.looks import AXE, DESK, Look, need_browser, serious
from support.team import Clock, live_through
from zeus.store.memory import MemoryStore
from zeus.store.tokens import Scope

PEOPLE = {  # with the team of each, and what they may do
    "nina": ("", Scope.READ),
    "alice": ("nlp", Scope.REPORT),
    "emil": ("vision", Scope.REPORT),
    "sam": ("ops", Scope.REPORT),
    "root": ("", Scope.ADMIN),
}
Enter = Callable[..., Look]


@pytest.fixture(scope="module")
def team() -> Iterator[tuple[str, MemoryStore, dict[str, str]]]:
    """The address of the service, its store, and everybody's token."""
    need_browser()
    from zeus.service.app import Settings
    from zeus.service.auth import new

    clock, secrets = Clock(time.time()), {}
    store = MemoryStore(wall=clock)
    live_through(store, clock)
    for name, (group, scope) in PEOPLE.items():
        token, secrets[name] = new(name, scope, "2026-01-01T00:00:00+00:00", team=group)
        store.tokens.add(token)
    with live(store, Settings(open=False)) as address:
        yield address, store, secrets


@pytest.fixture
def enter(browser: Any, team: tuple[str, MemoryStore, dict[str, str]]) -> Iterator[Enter]:
    """Sign somebody in, at a place of the page."""
    address, _, secrets = team
    looks: list[Look] = []

    def signed_in(name: str, place: str = "#/", **kind: Any) -> Look:
        look = Look(browser, **{**DESK, **kind})
        looks.append(look)
        look.page.goto(f"{address}/{place}")
        look.page.get_by_label("Token").fill(secrets[name])
        look.page.get_by_label("Token").press("Enter")
        look.page.locator("#who").get_by_text(name, exact=True).wait_for()
        look.page.locator("main h1").wait_for()
        look.wrong.clear()  # the browser notes the answer that a token is needed
        return look

    yield signed_in
    for look in looks:
        look.context.close()


def test_a_newcomer_finds_why_a_job_chose_256(enter: Enter) -> None:
    look = enter("nina")
    page = look.page
    frame = page.evaluate("(m => m === document.activeElement && getComputedStyle(m).outlineStyle)(main)")
    assert frame in (False, "none")  # who signed in with the keyboard sees no frame round the page
    page.get_by_role("searchbox", name="Find").press_sequentially("senti")
    page.clock.fast_forward(300)
    page.get_by_text("1 job;").wait_for()
    assert "epoch 6 of 40" in page.get_by_role("row", name="sentiment-nightly").inner_text()
    page.get_by_role("link", name="sentiment-nightly").click()
    page.get_by_role("heading", level=1, name="sentiment-nightly").wait_for()
    assert "Next: 256 is the best size so far" in page.locator("p.lead").inner_text()
    assert "runs the batch size that looks cheapest" in page.locator(".tiles").inner_text()
    page.get_by_role("button", name="Open trial 84").click()
    opened = page.locator("tr.opened")
    opened.get_by_text("target reached").wait_for()  # its log, from another machine
    assert "Why 256: 256 is the best size so far" in opened.inner_text()
    assert "gpu-03:/home/alice/sentiment-nightly" in opened.inner_text()
    beliefs = page.locator("section:has(h2:text-is('Belief about each batch size'))")
    beliefs.get_by_text("As a table").click()
    costs = {row.locator("td").nth(0).inner_text() for row in beliefs.locator("tbody tr").all()}
    assert {"64", "128", "256", "512"} <= costs
    assert page.get_by_role("button", name="Pause").count() == 0
    assert look.wrong == []


def test_an_owner_pauses_and_resumes(enter: Enter, team: tuple[str, MemoryStore, dict[str, str]]) -> None:
    store = team[1]
    look = enter("alice", "#/job/translate-de")
    page = look.page
    page.get_by_role("button", name="Pause").click()
    asked = page.get_by_role("dialog", name="Pause translate-de?")
    assert "Runs go on as before Zeus: with batch size 128" in asked.inner_text()
    asked.get_by_role("button", name="Cancel").click()
    assert store.job("translate-de").paused_by == ""
    page.get_by_role("button", name="Pause").click()
    asked.get_by_role("button", name="Pause").click()
    page.get_by_text("paused by nlp/alice", exact=True).wait_for()
    assert store.job("translate-de").paused_by == "nlp/alice"
    assert page.locator("section:has(h2:text-is('Audit')) tbody tr").first.inner_text().split("\t")[1] == "nlp/alice"
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Pause").wait_for()
    assert store.job("translate-de").paused_by == ""
    actions = page.locator("section:has(h2:text-is('Audit')) tbody tr td:nth-child(4)").all_inner_texts()
    assert actions[:2] == ["resumed", "paused"]
    assert look.wrong == []


def test_a_stranger_may_not(enter: Enter, team: tuple[str, MemoryStore, dict[str, str]]) -> None:
    look = enter("sam", "#/job/translate-de")
    page = look.page
    page.get_by_text("Only nlp/alice or an admin may change this job.").wait_for()
    for name in ("Pause", "Change η or β", "Reset", "Remove"):
        assert page.get_by_role("button", name=name).count() == 0
    assert page.get_by_role("link", name="Tokens").count() == 0
    told = page.evaluate(
        """async () => {
          const body = JSON.stringify({ paused: true }), headers = { "Content-Type": "application/json" };
          const answer = await fetch("api/v1/jobs/translate-de", { method: "PATCH", headers, body });
          return [answer.status, await answer.text()];
        }"""
    )
    assert told[0] == 403 and "belongs to nlp/alice" in told[1]
    assert team[1].job("translate-de").paused_by == ""


def test_an_owner_changes_eta_and_is_told_what_is_wrong(enter: Enter) -> None:
    look = enter("alice", "#/job/translate-de")
    page = look.page
    page.get_by_role("button", name="Change η or β").click()
    asked = page.get_by_role("dialog")
    asked.get_by_role("button", name="Change").click()
    asked.get_by_text("Nothing has changed.").wait_for()
    asked.get_by_label("η").fill("0.8")
    asked.get_by_role("button", name="Change").click()
    page.get_by_text("eta knob: 0.5 → 0.8").wait_for()
    assert "0.8" in page.locator("section:has(h2:text-is('Settings'))").inner_text()
    assert look.wrong == []


def test_a_crash_is_read_from_another_machine(enter: Enter) -> None:
    look = enter("nina", "#/?state=failing")
    page = look.page
    page.get_by_role("link", name="defects").first.click()
    page.get_by_role("link", name="Trial 32 crashed: read its log").click()
    log = page.get_by_label("Log of trial 32")
    log.wait_for()
    assert log.inner_text().rstrip().endswith("is invalid for input of size 9031680")
    page.wait_for_function("document.querySelector('tr.opened pre').getBoundingClientRect().bottom < innerHeight")
    assert "gpu-07:/home/emil/defects" in page.locator("tr.opened").inner_text()
    page.get_by_role("button", name="Open trial 32").click()
    assert page.locator("tr.opened").count() == 0
    assert look.wrong == []


def test_a_losing_job_is_found_in_the_fleet_view(enter: Enter) -> None:
    look = enter("nina")
    page = look.page
    page.get_by_role("link", name="Fleet").click()
    page.get_by_role("heading", level=1, name="Fleet").wait_for()
    assert re.fullmatch(
        r"\d jobs used .* kWh and saved .* ± .* kWh\. As of .* UTC\.", page.locator("p.lead").inner_text()
    )
    page.locator('[aria-label="energy used and saved by week"].plot .main-svg').first.wait_for()
    losing = page.locator("section:has(h2:text-is('Jobs that lose'))")
    words = losing.locator("li p").inner_text()
    assert "more energy" in words
    losing.get_by_role("link", name="forecast").click()
    page.get_by_role("heading", level=1, name="forecast").wait_for()
    assert words in page.locator(".tiles").inner_text()  # the same sentence
    assert look.wrong == []


def test_an_owner_offers_a_size_again_resets_and_removes(
    enter: Enter, team: tuple[str, MemoryStore, dict[str, str]]
) -> None:
    store = team[1]
    look = enter("emil", "#/job/image-quality")  # of his team
    page = look.page
    page.get_by_role("button", name="Reset").click()
    asked = page.get_by_role("dialog", name="Reset image-quality?")
    assert "28 trials and all power profiles are removed" in asked.inner_text()
    asked.get_by_role("button", name="Reset").click()
    page.get_by_text("The job has not run yet.").wait_for()
    assert store.count("image-quality") == 0
    page.get_by_role("button", name="Remove").click()
    asked = page.get_by_role("dialog", name="Remove image-quality?")
    asked.get_by_role("button", name="Remove").click()
    asked.get_by_text("This is not the name of the job.").wait_for()
    asked.get_by_label("Type image-quality to confirm").fill("image-quality")
    asked.get_by_role("button", name="Remove").click()
    page.get_by_role("heading", name="Recurring jobs").wait_for()
    assert "image-quality" not in store.pulse()
    look.go("#/job/defects")
    page.get_by_role("button", name="Offer a size again").click()
    page.get_by_role("dialog").get_by_role("combobox").select_option("32")
    page.get_by_role("dialog").get_by_role("button", name="Offer again").click()
    page.get_by_role("cell", name="pardoned").wait_for()


def test_curves_are_shown_by_epoch_and_by_energy(enter: Enter) -> None:
    look = enter("nina", "#/job/speech-wer")
    page = look.page
    curves = page.locator('[aria-label^="Learning curves"].plot')
    curves.locator(".main-svg").first.wait_for()
    read = "box => box.data.map(one => one.x)"
    epochs = curves.evaluate(read)
    assert all(one == list(range(1, len(one) + 1)) for one in epochs)
    page.get_by_role("button", name="by energy").click()
    page.wait_for_function("document.querySelector('[aria-label^=\"Learning curves\"].plot').data[0].x[0] !== 1")
    used = curves.evaluate(read)
    assert [len(one) for one in used] == [len(one) for one in epochs]
    assert all(one == sorted(one) for one in used)
    for earlier in ("trials 19 to 30", "trials 7 to 18", "trials 1 to 6"):
        page.locator("#curves-Earlier").click()
        page.get_by_text(earlier).wait_for()
    assert page.locator("#curves-Earlier").is_disabled()
    page.locator("#epochs-of").select_option("1")
    bars = page.locator('[aria-label^="Energy and power limit by epoch of trial 1 "].plot')
    bars.locator(".main-svg").first.wait_for()
    limits = bars.evaluate("box => box.data[1].y")
    assert limits[0] == 250 and set(limits[1:]) == {125}  # profiled in the first epoch, then at the best limit
    assert look.wrong == []


def test_what_a_job_did_is_taken_away_as_files(enter: Enter, tmp_path: Path) -> None:
    look = enter("nina", "#/job/sentiment-nightly")
    page = look.page

    def taken(name: str) -> Path:
        with page.expect_download() as download:
            page.get_by_role("button", name=name).first.click()
        file = tmp_path / download.value.suggested_filename
        download.value.save_as(file)
        return file

    rows = list(csv.DictReader(taken("Trials as CSV").read_text(encoding="utf-8").splitlines()))
    assert [row["number"] for row in rows] == [str(n) for n in range(1, 86)]
    assert rows[0]["host"] == "gpu-03" and float(rows[0]["joules"]) > 0
    assert json.loads(taken("Job as JSON").read_text(encoding="utf-8"))["job"] == "sentiment-nightly"
    page.wait_for_selector(".plot .main-svg")
    assert taken("Save as PNG").read_bytes().startswith(b"\x89PNG")
    assert look.wrong == []


def test_an_admin_sees_the_tokens_and_when_they_were_used(enter: Enter) -> None:
    look = enter("root")
    page = look.page
    page.get_by_role("link", name="Tokens").click()
    page.get_by_role("heading", level=1, name="Tokens").wait_for()
    rows = {row.locator("td").first.inner_text(): row.inner_text() for row in page.locator("tbody tr").all()}
    assert rows.keys() == {"nina", "nlp/alice", "vision/emil", "ops/sam", "root"}
    assert "valid" in rows["root"] and "just now" in rows["root"]
    assert look.wrong == []


def test_trials_that_did_not_come_with_a_job_are_asked_for(enter: Enter) -> None:
    look = enter("nina", "#/job/recsys-ctr")
    page = look.page
    page.get_by_role("button", name="Open trial 169").wait_for()
    assert page.get_by_role("button", name="Open trial").count() == 12
    page.locator("#trials-Earlier").click()
    page.get_by_role("button", name="Open trial 157").wait_for()
    page.get_by_role("combobox", name="Batch size", exact=True).select_option("1024")
    page.get_by_role("button", name="Open trial 1", exact=True).wait_for()
    sizes = page.locator("section:has(h2:text-is('Trials')) tbody td:nth-child(2)").all_inner_texts()
    assert set(sizes) == {"1024"}
    assert look.wrong == []


@pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: npm install")
def test_axe_finds_nothing_serious_in_what_needs_a_service(enter: Enter) -> None:
    page = enter("root", "#/tokens").page
    assert serious(page) == []
    page.evaluate("location.hash = '#/job/speech-wer'")
    for name in ("Pause", "Change η or β", "Reset", "Remove"):
        page.get_by_role("button", name=name).click()
        page.get_by_role("dialog").wait_for()
        assert (name, serious(page)) == (name, [])
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Open trial 42").click()
    page.get_by_text("target reached").wait_for()
    assert serious(page) == []
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token").wait_for()
    assert serious(page) == []
