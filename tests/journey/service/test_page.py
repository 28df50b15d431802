"""The page, looked at by a real browser: list, job, compare; on a desk, on a phone, in the dark; and as one file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from support.waiting import PATIENCE_SECONDS, eventually
from zeus.client.local import LocalJobs
from zeus.client.recurring import RecurringJob
from zeus.errors import InputError
from zeus.job import Ending, Gpus, JobSpec, Outcome, Trial
from zeus.launch.recurrence import recur
from zeus.profile import LimitSlice, PowerProfile, ProfileKey
from zeus.store.memory import MemoryStore

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
WIDTHS = (961, 1024, 1280, 1400, 1920)  # of desktops
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>job</b>"
PLACE = Gpus("V100", 1, 250.0)
PATIENCE_MS = 1000 * PATIENCE_SECONDS  # as the browser counts

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
pytest.importorskip("fastapi", reason="needs the service extra: pip install 'zeus-energy[service]'")
pytest.importorskip("uvicorn", reason="needs the service extra: pip install 'zeus-energy[service]'")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: apt-get install chromium")


def fill(store: MemoryStore, name: str, factor: float = 1.0) -> None:
    """A job that has run for a while; 32 never reaches the target."""
    sizes = (8, 16, 32)
    spec = JobSpec(
        job_id=name, job_id_prefix=name, batch_sizes=sizes, default_batch_size=16, mab_seed=1, policy="paper"
    )
    job = RecurringJob.register(LocalJobs(store), spec)

    def run(trial: Trial) -> Outcome:
        epochs = {8: 4, 16: 6, 32: 9}[trial.batch_size]
        reached = trial.batch_size != 32
        return Outcome(
            ending=Ending.CONVERGED if reached else Ending.NOT_CONVERGED,
            joules=1000.0 * factor * epochs,
            seconds=8.0 * epochs,
            epochs=epochs,
            metric=0.6 if reached else 0.2,
        )

    for size in (8, 16):
        slices = [LimitSlice(float(w), 10, 100 / w, 0.8 * 100) for w in (250, 200, 150)]
        store.put_profile(ProfileKey(name, size, "V100", 1), PowerProfile.of(slices))
        job.profiled(size, PLACE, joules=1000.0 * factor, seconds=8.0)
    for _ in range(8):
        recur(job, PLACE, run)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, MemoryStore]]:
    from support.live import live
    from zeus.service.app import Settings

    store = MemoryStore()
    fill(store, "speech")
    fill(store, HOSTILE, 2.0)
    with live(store, Settings(hosts=frozenset({"127.0.0.1"}))) as address:
        yield f"{address}/", store


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as session:
        one = session.chromium.launch(executable_path=CHROMIUM, args=ARGS, timeout=PATIENCE_MS)
        yield one
        one.close()


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


@pytest.fixture(scope="module")
def looks(browser: Any, served: tuple[str, MemoryStore], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looks]:
    made = Looks(browser, served[0], written(tmp_path_factory.mktemp("page"), everything()))
    yield made
    made.close()


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
    assert page.get_by_role("columnheader", name="speech").is_visible()
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("link", name="speech").click()
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
    logs = page.get_by_role("button", name="log of trial")
    assert logs.count() > 0
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        inside = logs.evaluate_all(
            "all => all.map(b => b.getBoundingClientRect().right <= b.closest('.scroll').getBoundingClientRect().right)"
        )
        assert all(inside), width
    logs.first.click()
    page.get_by_text("Log of trial").wait_for()


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


SAVED = "saved 42 % ± 1 % energy (43.7 kJ ± 1.20 kJ, measured); 12 % ± 0 % less time"
SAVINGS = {
    SAVED: {},
    "used 17 % ± 1 % more energy (17.0 kJ ± 1.20 kJ, measured)": {"joules": -17e3, "share": -0.172},
    "no difference seen (+900 J ± 1.20 kJ, measured)": {"joules": 900.0, "share": 0.009},
}


def test_a_saving_is_told_with_what_it_rests_on(looks: Looks) -> None:
    savings = {words: {**saving(), **changed, "sentence": words} for words, changed in SAVINGS.items()}
    jobs = {words: {"saving": found, "recent_saving": found} for words, found in savings.items()}
    page = None
    for words, page in visited(looks, jobs):
        assert tiles(page)["Saved energy"].split("\n")[0] == words
        assert tiles(page)["Latest recurrences"].split("\n")[0] == words
    assert page is not None
    page.get_by_role("link", name="Jobs").click()
    page.get_by_role("heading", level=1, name="Recurring jobs").wait_for()
    for row in page.locator("tbody tr").all():
        name = row.locator("td.name").inner_text()
        assert [one.split("\n")[0] for one in row.locator("td.words").all_inner_texts()] == [name, name]


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
    told = {
        "some": (0.4213, "Saved money", "0.42 EUR"),
        "hardly any": (-6.14e-7, "Extra money", "less than 0.01 EUR"),
        "more than the default": (-12.5, "Extra money", "12.50 EUR"),
        "much": (12_345.6, "Saved money", "12346 EUR"),
    }
    jobs = {}
    for job, (money, _, _) in told.items():
        sign = -1 if money < 0 else 1
        jobs[job] = {"saving": {**saving(), "money": money, "joules": sign * 43.7e3, "share": sign * 0.42}}
    for job, page in visited(looks, jobs):
        money, name, words = told[job]
        assert tiles(page)[name] == words
        page.get_by_role("link", name="Jobs").click()
        row = page.get_by_role("row", name=job).inner_text()
        assert f"{words} and 4.2 g CO₂e {'less' if money > 0 else 'more'}" in row


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
    assert "128\nrunning" in look.page.get_by_role("row", name="speech").inner_text()


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
        shown = look.page.locator("main").inner_text()
        assert "saved 42 % energy" in shown
        assert "undefined" not in shown and "NaN" not in shown and "null" not in shown
    assert look.wrong == []


def test_lines_of_the_script_fit_on_a_screen() -> None:
    from zeus.service.dashboard.page import MODULES, read

    for name in MODULES:
        script = read(name)
        assert script is not None
        lines = script.decode().splitlines()
        assert (name, [line for line in lines if len(line) > 120]) == (name, [])
        assert len(lines) <= 350, name


def test_the_page_in_one_file_holds_every_module() -> None:
    from zeus.service.dashboard.export import embed
    from zeus.service.dashboard.page import MODULES

    folder = resources.files("zeus.service.dashboard").joinpath("static")
    assert sorted(one.name for one in folder.iterdir() if one.name.endswith(".js")) == sorted(MODULES)
    script = embed({}).rpartition("<script>")[2]
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


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
    return dict(zip(found.locator("dt").all_inner_texts(), found.locator("dd").all_inner_texts(), strict=True))


def saving() -> dict[str, Any]:
    """As the service tells one."""
    return {
        "joules": 43.7e3,
        "seconds": 300.0,
        "cost": 60e3,
        "share": 0.42,
        "time_share": 0.12,
        "recurrences": 7,
        "money": 0.42,
        "currency": "EUR",
        "gco2e": 4.2,
        "basis": "measured",
        "joules_error": 1200.0,
        "seconds_error": 4.0,
        "sentence": SAVED,
        "difference_seen": True,
    }


def everything(recurrences: int = 8) -> dict[str, Any]:
    """A job with all that the service tells of one, and another that has not run yet."""
    usual = {
        "batch_size": 64,
        "limit_watts": 250.0,
        "runs": 3,
        "epochs": 9.0,
        "joules": 104e3,
        "seconds": 600.0,
        "cost": 127e3,
        "basis": "measured",
        "joules_error": 1500.0,
        "seconds_error": 5.0,
        "runs_measured": 3,
    }
    brief = {
        "job": "speech",
        "policy": "structured",
        "phase": "sampling",
        "recurrences": recurrences,
        "trials": recurrences + 1,
        "batch_size": 64,
        "default": usual,
        "default_why_not": None,
        "saving": saving(),
        "recent_saving": saving(),
        "running": [running()],
        "joules": 524e3,
        "unknown_tries": 0,
        "costs": [127e3] + [80e3] * (recurrences - 1),
        "remark": None,
    }
    spec = {
        "batch_sizes": [64, 128, 256],
        "default_batch_size": 64,
        "eta_knob": 0.5,
        "beta_knob": 2.0,
        "target_metric": 0.31,
        "higher_is_better_metric": False,
        "max_epochs": 40,
        "window_size": 10,
        "power_limits": [250.0, 200.0, 150.0],
    }
    measured = {"measurements": [step(150.0), step(200.0), step(250.0)]}
    places = [
        {"batch_size": size, "limit_watts": watts, "seconds": 600.0 - watts, "joules": 400.0 * watts}
        | {"is_default": (size, watts) == (64, 250.0), "on_front": size == 128}
        for size in (64, 128)
        for watts in (150.0, 200.0, 250.0)
    ]
    full = {
        **brief,
        "spec": spec,
        "policy_version": 3,
        "revision": 2,
        "registered_at": "2026-03-01T08:00:00.000000+00:00",
        "gpu_model": "V100",
        "max_watts": 250.0,
        "next": {"batch_size": 64, "reason": "64 is the best size so far; no other looks worth trying"},
        "stuck": None,
        "sizes": [belief(64, 90e3), belief(128, 80e3), belief(256, None)],
        "points": places,
        "history": [recurrence(number) for number in range(1, recurrences + 1)],
        "tries": [attempt(number) for number in range(1, recurrences + 1)]
        + [{**attempt(9), **running(), "ending": "open", "seconds": 300.0}],
    }
    waiting = {"job": "vision", "phase": "new", "recurrences": 0, "trials": 0, "batch_size": None, "saving": None}
    waiting |= {"recent_saving": None, "running": [], "joules": None, "costs": [], "remark": None}
    return {
        "at": "2026-03-02T08:00:00.000000+00:00",
        "summary": {
            "jobs": 2,
            "trials": recurrences + 1,
            "recurrences": recurrences,
            "joules": 524e3,
            "jobs_with_saving": 1,
            "saved_joules": 43.7e3,
            "saved_share": 0.42,
            "saved_seconds": 300.0,
            "saved_joules_error": 1200.0,
            "saved_sentence": SAVED,
            "money": 0.42,
            "currency": "EUR",
            "gco2e": 4.2,
        },
        "jobs": [brief, waiting],
        "full": {"speech": full},
        "profiles": {
            "speech": [
                profile(64, measured) | {"costs": {"150.0": 5.0, "200.0": 4.0, "250.0": 6.0}},
                profile(128, measured),
            ]
        },
    }


def running() -> dict[str, Any]:
    """A trial that is open now."""
    found = {"number": 9, "recurrence": 8, "attempt": 2, "batch_size": 128, "epochs": 4, "metric": 0.35}
    return {**found, "joules": 61.5e3, "asked_at": "2026-03-02T07:50:00.000000+00:00"}


def recurrence(number: int) -> dict[str, Any]:
    """The first runs the default; what that uses is known afterwards."""
    first = number == 1
    return {
        "number": number,
        "end": "converged",
        "tries": 1,
        "batch_size": 64 if first else 128,
        "epochs": 9,
        "joules": 104e3 if first else 60e3,
        "seconds": 600.0 if first else 520.0,
        "cost": 127e3 if first else 80e3,
        "default_joules": None if first else 104e3,
        "default_seconds": None if first else 600.0,
        "default_basis": None if first else "measured",
    }


def attempt(number: int) -> dict[str, Any]:
    """A try of the table of tries."""
    return {
        "number": number,
        "recurrence": number,
        "attempt": 1,
        "batch_size": 64 if number == 1 else 128,
        "gpu_model": "V100",
        "gpus": 2,
        "limits": {"250": 2, "150": 1, "200": 57},
        "eta": 0.5,
        "overshoot": 1500.0,
        "cost_limit": 200e3,
        "reason": "128 looks cheaper than 64 and has been tried less often than the others",
        "ending": "converged",
        "epochs": 9,
        "metric": 0.3,
        "joules": 60e3,
        "seconds": 520.0,
        "cost": 80e3,
        "asked_at": "2026-03-01T08:00:00.000000+00:00",
        "leased_until": None,
    }


def belief(size: int, mean: float | None) -> dict[str, Any]:
    """What is thought of a batch size."""
    found = {"batch_size": size, "standing": "offered", "runs": 3, "converged": 3}
    return {**found, "mean": mean, "spread": 2e3 if mean else None, "limit_watts": 200.0}


def profile(size: int, measured: dict[str, Any]) -> dict[str, Any]:
    """A power profile, as the service tells it."""
    return {"key": {"batch_size": size, "gpu_model": "V100", "gpu_count": 1}, "profile": measured, "best_limit": 200.0}


def step(watts: float) -> dict[str, Any]:
    """Ten steps at a power limit."""
    return {"power_limit": watts, "steps": 10, "energy": 0.5 * watts, "time": 100 / watts}
