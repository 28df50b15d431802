"""A job with a long past: its page loads little of it, and the rest when somebody wants to see it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from support.live import live
from support.looks import DESK, Look
from zeus.job import Decision, Ending, EpochPoint, Gpus, JobSpec, Outcome, Phase
from zeus.service.app import Settings
from zeus.store import MemoryStore, Request

TRIALS, BYTES = 700, 250_000  # a service with 10,000 trials sends no more
GPUS = Gpus("V100", 1, 250.0)


def always(decision: Decision, *_: object) -> Decision:
    return decision


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    store = MemoryStore()
    spec = JobSpec(job_id="long", job_id_prefix="long", batch_sizes=(8, 16, 32), default_batch_size=16, max_epochs=500)
    store.register(spec)
    for number in range(TRIALS):
        size = 8 if number % 100 == 50 else 16
        decision = Decision(size, Phase.SAMPLING, "the best so far", None)
        trial = store.ask("long", Request(gpus=GPUS), partial(always, decision))
        curve = tuple(EpochPoint(epoch, 0.001 * epoch, 987.654321, 12.3456789, 175.0) for epoch in range(1, 501))
        told = Outcome(
            ending=Ending.CONVERGED, joules=12_345.678901 + number, seconds=123.45, epochs=500, metric=0.6, curve=curve
        )
        store.tell("long", trial.number, told)
    with live(store, Settings(hosts=frozenset({"127.0.0.1"}))) as address:
        yield address


def test_the_page_of_a_long_past_is_small_and_the_rest_is_asked_for(address: str, browser: Any) -> None:
    look = Look(browser, **DESK)
    page, answers = look.page, list[Any]()
    page.on("response", lambda one: answers.append(one) if "/api/v1/jobs" in one.url else None)
    page.goto(f"{address}/#/job/long")
    page.locator('[aria-label^="Learning curves"].plot .main-svg').first.wait_for()
    page.get_by_role("button", name=f"Open trial {TRIALS}", exact=True).wait_for()
    sizes = {one.url: len(one.body()) for one in answers}
    assert sum(sizes.values()) < BYTES and len(sizes) == len(answers), sizes

    cost = page.locator("section:has(h2:text-is('Cost by recurrence'))")
    drawn = "box => box.querySelector('.plot').data.flatMap(one => one.mode === 'markers' ? one.x : [])"
    assert min(cost.evaluate(drawn)) == TRIALS - 299
    cost.get_by_role("button", name="Show 400 earlier").click()
    page.locator("#more-recurrences").wait_for(state="detached")
    page.locator('[aria-label^="Cost of 700"].plot .main-svg').first.wait_for()
    assert sorted(cost.evaluate(drawn)) == list(range(1, TRIALS + 1))

    before = len(answers)
    page.locator("#curves-Earlier").click()
    page.get_by_text("trials 677 to 688").wait_for()
    chosen = page.locator("#epochs-of option").all_inner_texts()
    assert chosen[0].startswith("688,") and len(chosen) == 12
    page.get_by_role("combobox", name="Batch size", exact=True).select_option("8")
    page.get_by_role("button", name="Open trial 651", exact=True).wait_for()
    assert page.get_by_role("button", name="Open trial").count() == 7
    assert len(answers) == before + 2, "one request for the curves, one for the filtered table"
    assert look.wrong == []
    look.context.close()
