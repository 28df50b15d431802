"""Threads and processes on one job, some of them killed: what every store promises of them."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from store_places import SPEC, Place, ask, sound
from store_worker import CONVERGED
from zeus.job import Ending


def test_threads_lose_and_double_no_trial(place: Place) -> None:
    store = place.open()
    store.register(SPEC)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                store.tell("asr", ask(store).number, CONVERGED)
        except BaseException as wrong:
            failed.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert [kept.trial.ending for kept in store.trials("asr")] == [Ending.CONVERGED] * 40
    sound(store)


def start(place: Place, times: int) -> subprocess.Popen[str]:
    worker = Path(__file__).parent.parent / "store_worker.py"
    assert place.url is not None
    return subprocess.Popen(
        [sys.executable, str(worker), place.url, "asr", str(times)], stdout=subprocess.PIPE, text=True
    )


def test_processes_that_open_a_new_store_at_once_all_find_it_whole(reachable: Place) -> None:
    assert reachable.url is not None
    code = "import sys; from zeus.store import open_store; print(open_store(sys.argv[1]).jobs())"
    crowd = [
        subprocess.Popen([sys.executable, "-c", code, reachable.url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [one.communicate(timeout=60)[0] for one in crowd] == ["[]\n"] * 3


def test_processes_lose_and_double_no_trial(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    crowd = [start(reachable, 10) for _ in range(3)]
    said = [one.communicate(timeout=60)[0].split("\n") for one in crowd]
    assert [one.returncode for one in crowd] == [0, 0, 0]
    asked = sorted(int(line.split()[1]) for lines in said for line in lines if line.startswith("asked"))
    assert asked == list(range(1, 31))
    assert {kept.trial.ending for kept in store.trials("asr")} == {Ending.CONVERGED}
    sound(store)


def test_killed_processes_leave_a_store_that_works_at_once_and_all_they_said_was_done(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    crowd = [start(reachable, 10_000) for _ in range(3)]
    said: list[str] = []
    for one in crowd:
        assert one.stdout is not None
        said += [one.stdout.readline() for _ in range(5)]
        one.kill()
        said += [line for line in one.stdout.read().split("\n") if line.count(" ") == 1]
        one.wait(60)
        one.stdout.close()
        assert ask(store).ending is Ending.OPEN
    endings = {kept.trial.number: kept.trial.ending for kept in store.trials("asr")}
    for verb, number in (line.split() for line in said if line.strip()):
        assert endings[int(number)] is (Ending.CONVERGED if verb == "told" else endings[int(number)])
    assert len(endings) - sum(ending is Ending.CONVERGED for ending in endings.values()) <= 6
    sound(store)
