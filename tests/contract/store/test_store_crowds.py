"""Threads and processes on one job, some of them killed: what every store promises of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter

import pytest

from support.paths import TESTS
from support.store_places import SPEC, Place, ask, sound
from support.store_worker import CONVERGED
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.job import Ending

WORKER = TESTS / "support" / "store_worker.py"
PROCESSES, TIMES, SEED = 15, 8, int(os.environ.get("ZEUS_TEST_SEED", "0"))


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
        thread.join(PATIENCE_SECONDS)
    assert failed == []
    assert [kept.trial.ending for kept in store.trials("asr")] == [Ending.CONVERGED] * 40
    sound(store)


def test_a_job_that_is_restarted_is_never_away(place: Place) -> None:
    store, reader = place.open(), place.open()
    spec = store.register(SPEC).spec
    done = threading.Event()
    seen: list[object] = []

    def look() -> None:
        try:
            while not done.is_set():
                seen.append(reader.job("asr").spec == spec)
                ask(reader)
        except BaseException as wrong:
            seen.append(wrong)

    looking = threading.Thread(target=look)
    looking.start()
    eventually(lambda: bool(seen))  # its thread has had its turn
    for _ in range(30):
        ask(store)
        store.restart("asr")
    done.set()
    looking.join(PATIENCE_SECONDS)
    assert set(seen) == {True}


RESTARTS = """
import sys
sys.path.insert(0, sys.argv[2])
from support.store_worker import WALL, first_size
from zeus.job import Gpus
from zeus.store import Request, open_store
store = open_store(sys.argv[1], wall=lambda: WALL)
while True:
    store.ask("asr", Request(gpus=Gpus(max_watts=250.0)), first_size)
    store.restart("asr")
    print(flush=True)
"""


def test_who_is_killed_while_it_restarts_a_job_leaves_one_of_its_lives_whole(reachable: Place) -> None:
    store = reachable.open()
    spec = store.register(SPEC).spec
    assert reachable.url is not None
    for killing in range(3):
        call = [sys.executable, "-c", RESTARTS, reachable.url, str(TESTS)]
        with subprocess.Popen(call, stdout=subprocess.PIPE) as one:
            assert one.stdout is not None
            for _ in range(3 + killing):
                assert one.stdout.readline()
            one.kill()
        assert store.job("asr").spec == spec
        assert len(store.trials("asr")) in (0, 1)
        sound(store)


@pytest.mark.usefixtures("warm")
def test_processes_that_open_a_new_store_at_once_all_find_it_whole(reachable: Place) -> None:
    assert reachable.empty is not None
    url = reachable.empty()
    code = "import sys; from zeus.store import open_store; print(open_store(sys.argv[1]).names().page)"
    crowd = [subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate(timeout=PATIENCE_SECONDS)[0] for one in crowd] == ["[]\n"] * 3


def crowd(place: Place, doom: list[tuple[int, float]]) -> tuple[list[list[str]], set[int]]:
    """What all processes said, as words, and who was killed: whoever says the n-th thing, so long after it did."""
    assert place.url is not None
    said: list[list[str]] = []
    killed: set[int] = set()
    told: Counter[int] = Counter()
    command = [sys.executable, str(WORKER), place.url, "asr", str(TIMES), str(PROCESSES)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as parent:
        too_long = threading.Timer(PATIENCE_SECONDS, os.killpg, (parent.pid, signal.SIGKILL))
        too_long.start()
        assert parent.stdout is not None
        for line in parent.stdout:
            said.append(line.split(maxsplit=2))
            pid = int(said[-1][0])
            told[pid] += said[-1][1] == "told"
            if doom and len(said) >= doom[0][0] and pid not in killed and told[pid] < TIMES:
                threading.Event().wait(doom.pop(0)[1])  # chooses the moment; any is good
                os.kill(pid, signal.SIGKILL)  # nobody has waited for it yet, so that this number is its own
                killed.add(pid)
        parent.communicate()
        too_long.cancel()
    assert parent.returncode == 0
    return said, killed


def test_of_15_processes_a_third_is_killed_and_no_trial_is_lost_or_double(reachable: Place) -> None:
    rng = random.Random(SEED)
    store = reachable.open()
    store.register(SPEC)
    doom = sorted((n, rng.uniform(0.0, 0.01)) for n in rng.sample(range(1, 110), PROCESSES // 3))
    said, killed = crowd(reachable, doom)
    assert ask(store).ending is Ending.OPEN  # at once, whatever the dead held
    assert [words for words in said if words[1] == "failed"] == []
    assert len(killed) == PROCESSES // 3

    sound(store)
    asked = [int(number) for _, verb, number in said if verb == "asked"]
    told = [int(number) for _, verb, number in said if verb == "told"]
    assert len(set(asked)) == len(asked)
    trials = {kept.trial.number: kept.trial for kept in store.trials("asr")}
    assert {trials[number].ending for number in told} == {Ending.CONVERGED}
    finished = Counter(int(pid) for pid, verb, _ in said if verb == "told" and int(pid) not in killed)
    assert list(finished.values()) == [TIMES] * (PROCESSES - len(killed))
    # Each of the dead leaves at most one trial that it had not told of, or did not live to say so; one is our own.
    assert len(trials) - len(told) <= len(killed) + 1

    still_open = {number for number, trial in trials.items() if trial.ending is Ending.OPEN}
    reachable.clock.sleep(600)
    assert ask(store).number == len(trials) + 1
    assert {kept.trial.number for kept in store.trials("asr") if kept.trial.ending is Ending.LOST} == still_open
    sound(store)


DIES = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from support.store_worker import WALL, first_size
from zeus.job import Gpus
from zeus.store import Request, open_store
def die(job, ask, facts):
    first_size(job, ask, facts)
    os.kill(os.getpid(), signal.SIGKILL)
open_store(sys.argv[1], wall=lambda: WALL).ask("asr", Request(gpus=Gpus(max_watts=250.0)), die)
"""


def test_who_is_killed_while_it_decides_has_opened_nothing_and_is_waited_for_by_nobody(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    assert reachable.url is not None
    call = [sys.executable, "-c", DIES, reachable.url, str(TESTS)]
    assert subprocess.run(call, check=False, timeout=PATIENCE_SECONDS).returncode == -signal.SIGKILL
    assert ask(store).number == 1
    sound(store)


FORKS = """
import os, sys
sys.path.insert(0, sys.argv[2])
from support.store_worker import WALL, first_size
from zeus.job import Gpus
from zeus.store import Request, open_store
store = open_store(sys.argv[1], wall=lambda: WALL)
def ask():
    return store.ask("asr", Request(gpus=Gpus(max_watts=250.0)), first_size).number
ask()
child = os.fork()
ask()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
ask()
"""


@pytest.mark.usefixtures("warm")
def test_a_forked_child_uses_connections_of_its_own(reachable: Place) -> None:
    store = reachable.open()
    store.register(SPEC)
    assert reachable.url is not None
    subprocess.run([sys.executable, "-c", FORKS, reachable.url, str(TESTS)], check=True, timeout=PATIENCE_SECONDS)
    assert ask(store).number == 5
    sound(store)
