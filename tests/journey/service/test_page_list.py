"""The list of jobs: found, filtered and sorted, and a link to what it shows."""

from __future__ import annotations

from typing import Any

from support.looks import Look, Looks, opened
from support.page_data import everything, saving


def team() -> dict[str, Any]:
    """Four jobs of three people."""
    data = everything()
    brief, gone = data["jobs"][0], {**saving(), "joules": -5e3, "sentence": "used 5 % more energy"}
    rows = {
        "asr-nightly": {"owner": "nlp/alice", "gpu_model": "V100", "state": "ok", "failures": 0, "joules": 3e6},
        "bert-large": {"owner": "nlp/alice", "gpu_model": "H100", "state": "running", "failures": 1, "joules": 9e6},
        "ctr": {"owner": "ads/chen", "gpu_model": "H100", "state": "losing", "saving": gone, "joules": 1e6},
        "defects": {"owner": "emil", "gpu_model": "V100", "state": "failing", "failures": 4, "last_end": "crashed"},
    }
    runs = {"ctr": "2026-03-02T06:00:00+00:00", "asr-nightly": "2026-03-02T07:00:00+00:00"}
    data["jobs"] = [
        {**brief, "running": [], "last_run_at": runs.get(name), **row, "job": name} for name, row in rows.items()
    ]
    return data


def names(page: Any) -> list[str]:
    return list(page.locator("tbody td.name").all_inner_texts())


def address(look: Look) -> str:
    return str(look.page.evaluate("location.hash"))


def test_a_job_is_found_by_owner_gpu_and_state(looks: Looks) -> None:
    look = opened(looks, team(), "#/")
    page = look.page
    assert names(page) == ["asr-nightly", "bert-large", "ctr", "defects"]
    page.get_by_role("combobox", name="Owner", exact=True).select_option("nlp/alice")
    page.get_by_text("2 jobs;").wait_for()
    page.get_by_role("combobox", name="GPU", exact=True).select_option("H100")
    page.get_by_text("1 job;").wait_for()
    assert names(page) == ["bert-large"]
    assert address(look) == "#/?owner=nlp%2Falice&gpu=H100"
    page.go_back()
    page.get_by_text("2 jobs;").wait_for()
    page.get_by_role("combobox", name="Owner", exact=True).select_option("")
    page.get_by_role("combobox", name="State", exact=True).select_option("losing")
    page.get_by_text("1 job;").wait_for()
    assert names(page) == ["ctr"]
    assert page.locator("tbody .pill").inner_text() == "losing"
    assert look.wrong == []


def test_a_heading_sorts_and_sorts_the_other_way(looks: Looks) -> None:
    look = opened(looks, team(), "#/")
    page = look.page
    sorts = page.get_by_role("columnheader", name="Energy")
    sorts.get_by_role("link").click()
    page.wait_for_function("location.hash === '#/?sort=joules'")
    assert sorts.get_attribute("aria-sort") == "ascending"
    assert names(page) == ["defects", "ctr", "asr-nightly", "bert-large"]
    assert page.evaluate("document.activeElement.id") == "sort-joules"  # for who has no mouse
    sorts.get_by_role("link").press("Enter")
    page.wait_for_function("location.hash === '#/?sort=joules&desc=true'")
    assert names(page)[0] == "bert-large"
    page.get_by_role("columnheader", name="Last run").get_by_role("link").click()
    page.wait_for_function("location.hash === '#/?sort=last'")
    assert names(page) == ["ctr", "asr-nightly", "bert-large", "defects"]  # those that never ran are last
    assert look.wrong == []


def test_jobs_are_found_while_one_types_and_one_step_goes_back(looks: Looks) -> None:
    look = opened(looks, team(), "#/?state=running")
    page = look.page
    page.get_by_role("combobox", name="State", exact=True).select_option("")
    page.get_by_text("4 jobs;").wait_for()
    field = page.get_by_role("searchbox", name="Find")
    for letter in "ctr":
        field.press_sequentially(letter)
        page.clock.fast_forward(300)
    page.get_by_text("1 job;").wait_for()
    assert names(page) == ["ctr"]
    assert page.evaluate("document.activeElement.id") == "q"  # one may type on
    assert address(look) == "#/?q=ctr"
    page.go_back()
    page.get_by_text("4 jobs;").wait_for()
    assert look.wrong == []


def test_a_link_shows_what_its_sender_saw(looks: Looks) -> None:
    look = opened(looks, team(), "#/?q=e&gpu=V100&sort=failures&desc=true")
    page = look.page
    assert names(page) == ["defects"]
    assert page.get_by_role("searchbox", name="Find").input_value() == "e"
    assert page.get_by_role("combobox", name="GPU", exact=True).input_value() == "V100"
    assert page.get_by_role("columnheader", name="Failures").get_attribute("aria-sort") == "descending"
    row = page.get_by_role("row", name="defects").inner_text()
    assert "4 of the last 10" in row and "crashed" in row


def test_a_running_trial_is_told_in_the_list(looks: Looks) -> None:
    data = team()
    trial = {"number": 7, "batch_size": 256, "epochs": 4, "max_epochs": 40, "watts": 212.4, "joules": 61.5e3}
    data["jobs"][1] |= {"running": [{**trial, "host": "gpu-03", "user": "alice"}]}
    look = opened(looks, data, "#/?state=running")
    told = look.page.get_by_role("row", name="bert-large").inner_text()
    assert "batch size 256, epoch 4 of 40, 212 W, 61.5 kJ, on gpu-03" in told
