"""The page, looked at by a real browser: list, job, compare; on a desk, on a phone, in the dark; and as one file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from waiting import PATIENCE_SECONDS
from zeus.job import Ending, Gpus, JobSpec, Outcome, Trial
from zeus.launch.recurrence import recur
from zeus.optimizer.batch_size.local import LocalJob
from zeus.profile import PowerProfile, ProfileKey, Slice
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
    job = LocalJob.register(store, spec)

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
        slices = [Slice(float(w), 10, 100 / w, 0.8 * 100) for w in (250, 200, 150)]
        store.put_profile(ProfileKey(name, size, "V100", 1), PowerProfile.of(slices))
        job.profiled(size, PLACE, joules=1000.0 * factor, seconds=8.0)
    for _ in range(8):
        recur(job, PLACE, run)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, MemoryStore]]:
    from live import live
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
    """A page that notes what went wrong in it, and what it asked of others."""

    def __init__(self, browser: Any, **kind: Any) -> None:
        self.context = browser.new_context(**kind)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: self.asked.append(request.url))


DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}}
KINDS: dict[str, dict[str, Any]] = {
    "desk": DESK,
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
    "dark": {**DESK, "color_scheme": "dark"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_finds_a_job_and_everything_about_it(
    kind: str, served: tuple[str, MemoryStore], browser: Any, tmp_path: Path
) -> None:
    address, _ = served
    look = Look(browser, **KINDS[kind])
    page = look.page
    page.goto(address)
    page.get_by_role("link", name="speech").click()
    page.wait_for_selector(".plot .main-svg")
    assert page.get_by_role("heading", level=1).inner_text() == "speech"
    assert page.locator(".plot .main-svg").count() >= 5  # cost, beliefs, path, profiles, front
    for words in ("Saved energy", "What it believes of each batch size", "Time against energy", "Trials"):
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


def test_from_list_to_job_to_compare(served: tuple[str, MemoryStore], browser: Any) -> None:
    look = Look(browser, **DESK)
    page = look.page
    page.goto(served[0])
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


def test_a_hostile_name_is_shown_as_text(served: tuple[str, MemoryStore], browser: Any) -> None:
    look = Look(browser, **DESK)
    page = look.page
    page.goto(served[0])
    page.get_by_role("link", name=HOSTILE).click()
    page.wait_for_selector(".plot .main-svg")
    assert page.get_by_role("heading", level=1).inner_text() == HOSTILE
    page.goto(f"{served[0]}#/compare?job=speech&job={HOSTILE.replace('#', '%23')}")
    page.wait_for_selector(".plot .legendtext")
    assert "owned" not in page.title().replace(HOSTILE, "")
    assert page.locator("img[src=x]").count() == 0
    assert look.wrong == []


def test_what_happens_meanwhile_appears_without_a_reload(served: tuple[str, MemoryStore], browser: Any) -> None:
    address, store = served
    look = Look(browser, **DESK)
    look.page.goto(address)
    look.page.get_by_role("link", name="speech").wait_for()
    fill(store, "newcomer")
    look.page.get_by_role("link", name="newcomer").wait_for()
    store.forget("newcomer")


def test_what_happens_while_the_page_is_fetched_appears_too(served: tuple[str, MemoryStore], browser: Any) -> None:
    address, store = served
    look = Look(browser, **DESK)

    def answer_late(route: Any) -> None:
        answer = route.fetch()
        fill(store, "latecomer")
        route.fulfill(response=answer)

    look.page.route("**/api/v1/jobs?*", answer_late, times=1)
    look.page.goto(address)
    look.page.get_by_role("link", name="latecomer").wait_for()
    store.forget("latecomer")


def test_where_a_token_is_needed_the_page_asks_for_it_once(browser: Any) -> None:
    from live import live
    from zeus.service.app import Settings
    from zeus.service.auth import new
    from zeus.store.tokens import Scope

    store = MemoryStore()
    fill(store, "speech")
    token, secret = new("page", Scope.READ, "2026-01-01T00:00:00+00:00")
    store.tokens.add(token)
    with live(store, Settings(open=False)) as address:
        page = Look(browser, **DESK).page
        page.goto(f"{address}/")
        page.get_by_label("Token").fill("zeus_wrong_token")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").get_by_text("wrong").wait_for()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="speech").wait_for()
        assert page.evaluate("document.cookie") == ""  # no script can read it
        page.reload()
        page.get_by_role("link", name="speech").wait_for()


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
