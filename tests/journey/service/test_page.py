"""The page, looked at by a real browser: list, job, compare; on a desk, on a phone, in the dark; and as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.looks import DESK, KINDS, Look, Looks
from support.page_data import everything
from support.page_jobs import HOSTILE, PLACE, fill
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.errors import InputError
from zeus.job import Ending, Outcome
from zeus.store.memory import MemoryStore

WIDTHS = (961, 1024, 1280, 1400, 1920)  # of desktops


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_finds_a_job_and_everything_about_it(
    kind: str, served: tuple[str, MemoryStore], looks: Looks, tmp_path: Path
) -> None:
    address, _ = served
    look = looks.served(kind)
    page = look.page
    page.get_by_role("link", name="speech").click()
    page.wait_for_selector(".plot .main-svg")
    assert page.get_by_role("heading", level=1).inner_text() == "speech"
    assert page.locator(".plot .main-svg").count() >= 5  # cost, beliefs, path, profiles, front
    for words in ("Saved energy", "Belief about each batch size", "Time against energy", "Trials"):
        assert page.get_by_text(words, exact=True).first.is_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= KINDS[kind]["viewport"]["width"]  # nothing makes the page scroll sideways
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(17, 21, 27)") == (kind == "dark")
    picture = tmp_path / f"{kind}.png"
    page.screenshot(path=str(picture), full_page=True)
    assert picture.stat().st_size > 20_000
    assert look.wrong == []
    assert all(url.startswith((address, "data:", "blob:")) for url in look.asked)  # nothing is fetched from elsewhere


def test_from_list_to_job_to_compare(looks: Looks) -> None:
    look = looks.served()
    page = look.page
    page.get_by_role("link", name="speech").wait_for()
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare 2").click()
    page.wait_for_selector(".plot .main-svg")
    assert page.get_by_role("heading", level=1).inner_text() == "2 jobs side by side"
    page.get_by_role("row", name="speech").get_by_role("link").click()
    page.get_by_label("Ended").select_option("not_converged")
    page.wait_for_function("document.querySelector('caption').textContent.includes('of')")
    shown = page.locator("section:has(h2:text('Trials')) tbody tr")
    assert shown.count() > 0
    assert all("did not reach" in row.inner_text() for row in shown.all())
    assert look.wrong == []


def test_a_hostile_name_is_shown_as_text(looks: Looks) -> None:
    look = looks.served()
    page = look.page
    page.get_by_role("link", name=HOSTILE).click()
    page.wait_for_selector(".plot .main-svg")
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE
    look.go(f"#/compare?job=speech&job={quote(HOSTILE)}")
    page.wait_for_selector(".plot .legendtext")
    assert "owned" not in page.title().replace(HOSTILE, "")
    assert page.locator("img[src=x]").count() == 0
    assert look.wrong == []


def test_what_happens_meanwhile_appears_without_a_reload(served: tuple[str, MemoryStore], looks: Looks) -> None:
    look = looks.served()
    newcomer = look.page.get_by_role("link", name="newcomer")
    assert look.page.get_by_role("link", name="speech").is_visible() and not newcomer.is_visible()
    fill(served[1], "newcomer")
    look.until(newcomer.is_visible)
    served[1].forget("newcomer")
    look.until(lambda: not newcomer.is_visible())


def test_what_waits_while_a_person_chooses_is_said_and_then_appears(
    served: tuple[str, MemoryStore], looks: Looks
) -> None:
    look = looks.served()
    newcomer, status = look.page.get_by_role("link", name="newcomer"), look.page.get_by_role("status")
    look.go("#/")
    look.page.locator("#list-state").click()
    fill(served[1], "newcomer")
    look.until(lambda: status.inner_text() == "news waits while you choose" or newcomer.is_visible())
    assert not newcomer.is_visible()
    look.until(newcomer.is_visible)  # although the choice still has the focus
    assert status.inner_text() == "Live"
    served[1].forget("newcomer")
    look.until(lambda: not newcomer.is_visible())


def test_what_happens_while_the_page_is_fetched_appears_too(served: tuple[str, MemoryStore], looks: Looks) -> None:
    store, look = served[1], looks.served()

    def answer_late(route: Any) -> None:
        answer = route.fetch()
        fill(store, "latecomer")
        route.fulfill(response=answer)

    look.page.route("**/api/v1/jobs?*", answer_late, times=1)
    look.go("#/")
    look.until(look.page.get_by_role("link", name="latecomer").is_visible)
    store.forget("latecomer")


def test_where_a_token_is_needed_the_page_asks_for_it_once(browser: Any) -> None:
    from support.live import live
    from zeus.service.app import Settings
    from zeus.service.auth import new
    from zeus.store.tokens import Scope

    store = MemoryStore()
    fill(store, "speech")
    token, secret = new("page", Scope.READ, "2026-01-01T00:00:00+00:00")
    store.tokens.add(token)
    with live(store, Settings(open=False)) as address:
        look = Look(browser, **DESK)
        page = look.page
        page.goto(f"{address}/")
        page.get_by_label("Token").fill("zeus_wrong_token")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text("unknown or was revoked").wait_for()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="speech").wait_for()
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.reload()
        page.get_by_role("link", name="speech").wait_for()
        page.get_by_role("button", name="Log out").click()  # the page knows after a reload, too, that it is logged in
        page.get_by_label("Token").wait_for()
        assert page.context.cookies() == []
        page.reload()
        page.get_by_label("Token").wait_for()
        assert not page.get_by_role("button", name="Log out").is_visible()
        look.context.close()


def test_where_no_token_is_needed_there_is_nothing_to_log_out_of(looks: Looks) -> None:
    from zeus.service.auth import new
    from zeus.store.tokens import Scope

    look = looks.served()  # which has asked who it is
    assert look.page.get_by_role("link", name="speech").is_visible()
    assert not look.page.get_by_role("button", name="Log out").is_visible()
    with pytest.raises(InputError, match="without a token"):  # as which the page knows who has nothing to log out of
        new("anybody", Scope.READ, "2026-01-01T00:00:00+00:00")


def test_the_page_as_one_file_needs_nobody(browser: Any, tmp_path: Path) -> None:
    from zeus.service.dashboard.export import export

    store = MemoryStore()
    fill(store, "speech")
    fill(store, HOSTILE)
    file = tmp_path / "zeus.html"
    file.write_text(export(store), encoding="utf-8")
    look = Look(browser, **DESK)
    look.context.set_offline(True)
    look.page.goto(file.as_uri())
    look.page.get_by_role("link", name=HOSTILE).wait_for()
    look.page.get_by_role("link", name="speech").click()
    look.page.wait_for_selector(".plot .main-svg")
    assert look.page.locator("img[src=x]").count() == 0
    look.page.get_by_role("link", name="Fleet").click()
    look.page.get_by_text("2 jobs used").wait_for()
    assert look.wrong == []
    assert all(url.startswith(("file:", "data:", "blob:")) for url in look.asked)
    look.context.close()


# ---------------------------------------------------------------------- faults that people met


def test_nothing_lies_outside_its_table(looks: Looks) -> None:
    looks.file().show(everything())
    for look, place, name in (
        (looks.file(), "#/", "Recurring jobs"),
        (looks.file(), "#/job/speech", "speech"),
        (looks.served(), "#/", "Recurring jobs"),
        (looks.served(), "#/job/speech", "speech"),
    ):
        page = look.page
        look.go(place)
        page.get_by_role("heading", level=1, name=name).wait_for()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate(
                "[...document.querySelectorAll('table.stack')].map(t => [t.scrollWidth, t.parentElement.clientWidth])"
            )
            assert wide and all(table <= room for table, room in wide), (place, width)


def test_a_running_trial_is_shown_and_followed(served: tuple[str, MemoryStore], looks: Looks) -> None:
    store, look = served[1], looks.served()
    fill(store, "night")
    trial = RecurringJob.find(LocalJobs(store), "night").ask(PLACE)
    look.go("#/job/night")
    card = look.page.get_by_role("region", name=f"Trial {trial.number} is running")
    card.wait_for()
    assert card.get_by_text("not reported yet").count() == 3
    assert look.page.get_by_text("Batch size now", exact=True).is_visible()
    so_far = Outcome(ending=Ending.LOST, joules=2345.0, seconds=24.0, epochs=3, metric=0.41)
    store.renew("night", trial.number, so_far)
    look.until(card.get_by_text("3 of at most 100").is_visible)  # without a reload
    shown = card.inner_text()
    assert "0.41" in shown and "2.35 kJ" in shown
    store.tell("night", trial.number, Outcome(ending=Ending.CRASHED))
    look.until(lambda: card.count() == 0)
    assert look.wrong == []
    store.forget("night")
