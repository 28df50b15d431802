"""Takes the pictures of the page in docs/service.md: a team's service on this machine, in a browser without a window.

ZEUS_PRICE_PER_KWH=0.30 ZEUS_CURRENCY=EUR ZEUS_GCO2E_PER_KWH=320 python docs/assets/make_screenshots.py [FOLDER]

Needs the extras `dev` and `plots`, and Debian's chromium. The jobs are models (tests/support/team.py).
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import httpx
from PIL import Image
from playwright.sync_api import sync_playwright

from support.live import live
from support.looks import ARGS, CHROMIUM
from support.team import Clock, live_through
from zeus.service.app import Settings
from zeus.service.auth import new
from zeus.store.memory import MemoryStore
from zeus.store.tokens import Scope

DESK: dict[str, Any] = {"viewport": {"width": 1400, "height": 900}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
SOME = "&".join(
    f"job={name}" for name in ("sentiment-nightly", "speech-wer", "recsys-ctr", "image-quality", "forecast")
)
PICTURES = {  # name: kind of screen, colours, place, what to scroll to
    "page-list": (DESK, "light", "#/", None),
    "page-job": (DESK, "light", "#/job/sentiment-nightly", None),
    "page-curves": (DESK, "dark", "#/job/speech-wer", "section:has(h2:text-is('Learning curves'))"),
    "page-log": (DESK, "light", "#/job/defects?trial=32", None),
    "page-fleet": (DESK, "light", "#/fleet", None),
    "page-phone": (PHONE, "dark", f"#/compare?{SOME}", None),
}


def main(folder: Path) -> None:
    clock = Clock(time.time())
    store = MemoryStore(wall=clock)
    live_through(store, clock)
    token, secret = new("alice", Scope.REPORT, "2026-01-01T00:00:00+00:00", team="nlp")
    store.tokens.add(token)
    with live(store, Settings(open=False)) as address, sync_playwright() as session:
        asker = {"Authorization": f"Bearer {secret}"}
        with httpx.Client(base_url=f"{address}/api/v1", headers=asker, timeout=60) as client:
            wanted = sum(job["trials"] for job in client.get("/jobs").json()["jobs"])
            while client.get("/summary").json()["trials"] < wanted:
                time.sleep(0.5)  # the service brings its totals up to date little by little
        browser = session.chromium.launch(executable_path=CHROMIUM, args=ARGS)
        for name, (screen, colours, place, target) in PICTURES.items():
            page = browser.new_context(color_scheme=colours, **screen).new_page()
            page.goto(f"{address}/{place}")
            page.get_by_label("Token").fill(secret)
            page.get_by_label("Token").press("Enter")
            page.get_by_text("Live", exact=True).wait_for()
            page.locator("main h1").wait_for()
            page.wait_for_timeout(1500)  # charts are drawn, and the log is read
            if target is not None:
                page.locator(target).evaluate("one => scrollTo(0, one.offsetTop - 80)")
            file = folder / f"{name}.png"
            page.screenshot(path=str(file))
            Image.open(file).convert("RGB").quantize(128).save(file, optimize=True)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
