"""The end of a log, as it travels to the store and is read from another machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.store_places import HERE, SPEC, Place, ask
from zeus import settings
from zeus.client.local import LocalJobs
from zeus.client.trial_log import TRACEBACK, tail_of
from zeus.errors import Forbidden, NotKnown
from zeus.job import Origin
from zeus.store import MemoryStore
from zeus.store.actor import Actor, acting
from zeus.store.trial_logs import MOST_BYTES, last_lines

CRASH = f'{TRACEBACK}\n  File "train.py", line 7, in <module>\nValueError: no data\n'


@given(text=st.text(), most=st.integers(1, 40))
def test_a_tail_is_the_end_of_the_text_and_fits(text: str, most: int) -> None:
    tail = last_lines(text, most)
    assert len(tail.encode()) <= most
    assert text.replace("\0", "").encode(errors="replace").decode().endswith(tail)


@given(lines=st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n\0\r"), max_size=9), max_size=9))
def test_a_tail_has_whole_lines_if_one_fits(lines: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    tail = last_lines(text, 10)
    assert all(line in lines for line in tail.split("\n")[:-1]), tail


def test_after_a_crash_the_tail_holds_the_traceback_even_if_more_came_after_it(tmp_path: Path) -> None:
    log = tmp_path / "1.log"
    log.write_text(f"epoch 1\n{CRASH}" + "another rank waits\n" * 20_000)
    assert TRACEBACK not in tail_of(log)
    tail = tail_of(log, crashed=True)
    assert tail.startswith(CRASH)
    assert tail.endswith("another rank waits\n")
    assert len(tail.encode()) <= MOST_BYTES
    log.write_text(f"epoch 1\n{CRASH}")
    assert tail_of(log, crashed=True) == f"epoch 1\n{CRASH}"


def test_a_log_is_kept_read_and_removed_with_its_job(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    trial = ask(store)
    assert (store.logs.find("asr", 1), store.logs.times("asr")) == (None, {})
    for text in ("epoch 1\n", "epoch 1\nepoch 2\n"):
        store.logs.keep("asr", 1, text, trial_id=trial.id)
    kept = place.open().logs.find("asr", 1)
    assert kept is not None
    assert kept.text == "epoch 1\nepoch 2\n"
    assert store.logs.times("asr", [1, 2]) == {1: kept.at}
    for number, trial_id in ((2, ""), (1, "another")):
        with pytest.raises(NotKnown):
            store.logs.keep("asr", number, "x", trial_id=trial_id)
    store.restart("asr")
    assert store.logs.find("asr", 1) is None


def test_logs_that_are_too_old_are_removed(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    ask(store)
    store.logs.keep("asr", 1, "old\n")
    place.clock.sleep(31 * 86_400.0)
    newer = ask(store)
    place.open().logs.keep("asr", newer.number, "new\n")
    assert set(store.logs.times("asr")) == {newer.number}


def test_retention_says_how_much_is_kept() -> None:
    store = MemoryStore()
    store.register(SPEC)
    ask(store)
    with settings.changed({"ZEUS_LOG_BYTES": "8"}):
        store.logs.keep("asr", 1, "epoch 1\nepoch 2\n")
    kept = store.logs.find("asr", 1)
    assert kept is not None and kept.text == "epoch 2\n"
    with settings.changed({"ZEUS_LOGS_DAYS": "0"}):
        ask(store)
        store.logs.keep("asr", 2, "never\n")
    assert store.logs.find("asr", 2) is None


def test_somebody_elses_log_is_not_overwritten() -> None:
    store = MemoryStore()
    with acting(Actor("alice", owner="alice")):
        store.register(SPEC)
    ask(store)
    with acting(Actor("carol", owner="carol", may_all=False)), pytest.raises(Forbidden, match="belongs to alice"):
        store.logs.keep("asr", 1, "forged")


def test_without_a_log_the_message_says_where_the_trial_ran() -> None:
    jobs = LocalJobs(MemoryStore(), origin=lambda: Origin("alice", "node7", "/home/alice/asr"))
    jobs.register(SPEC)
    jobs.ask("asr", HERE.gpus)
    where = r"It ran on node7 as alice, started in /home/alice/asr\. Look there"
    with pytest.raises(NotKnown, match=rf"log of trial 1 is neither in the store nor on this machine\. {where}"):
        jobs.told_log("asr", 1)
    jobs.store.logs.keep("asr", 1, "epoch 1\n")
    told = jobs.told_log("asr", 1)
    assert (told["log"], told["host"], told["folder"]) == ("epoch 1\n", "node7", "/home/alice/asr")
    assert jobs.full("asr")["tries"][0]["log_at"] == told["at"]
