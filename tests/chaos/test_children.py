"""Hostile commands under `zeus run`, and kill -9 of whoever watches over them: nothing lives on, nothing is told twice.

A command may ignore signals, leave workers behind in sessions of their own, close or flood its output, and end at odd
times. Killed are the run, a guard, the run with a guard, both guards, or all of them. For `make test` the usual ones
have tests of their own in journey/launch/process/test_orphans.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place, guards, is_running
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.job import Ending, Trial

LIMIT = 250.0  # as the card is found
GENTLE = "end, then metric"

DEAF = "for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)"
WORKER = """
def worker(alone, deaf, twice):
    if os.fork(): return
    if alone: os.setsid()
    if twice and os.fork(): os._exit(0)
    if deaf:
        {deaf}
    time.sleep(600)
    os._exit(0)
"""
NOISE = {
    "silent": "pass",
    "without a newline": "os.write(1, b'x' * 3_000_000)",
    "zeros": r"os.write(1, b'\0' * 1_000_000 + b'\n')",
    "many lines": "sys.stdout.write('nothing to see\\n' * 50_000)",
    "bytes": "os.write(1, os.urandom(500_000))",
    "closed": "os.close(1); os.close(2); os.open(os.devnull, os.O_WRONLY); os.open(os.devnull, os.O_WRONLY)",
}
ENDS = {
    "trains on": "pass",
    "ends well": "os._exit(0)",
    "fails": "os._exit(3)",
    "raises": "raise RuntimeError('odd')",
    "is killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "breaks": "os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "time.sleep(600)",
}
RUN, INNER, OUTER = "run", "inner guard", "outer guard"
KILLS = [(), (RUN,), (INNER,), (OUTER,), (RUN, INNER), (RUN, OUTER), (INNER, OUTER), (RUN, INNER, OUTER)]


def hostile(dice: random.Random, detached: bool) -> str:
    """What a command does before it trains."""
    workers = [
        f"worker({detached and dice.random() < 0.6}, {dice.random() < 0.6}, {dice.random() < 0.4})"
        for _ in range(dice.randrange(4))
    ]
    deaf = DEAF if dice.random() < 0.4 else "pass"
    noise, end = NOISE[dice.choice([*NOISE])], ENDS[dice.choices([*ENDS], [10, 1, 1, 1, 1, 1, 5])[0]]
    lines = ["import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", WORKER.format(deaf=DEAF), deaf]
    return "\n".join([*lines, *workers, noise, "sys.stdout.flush()", "pathlib.Path('ready').touch()", end])


def marked(mark: str) -> list[int]:
    """Whoever descends from the command of this mark, its guards too."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"CHAOS_ROUND={mark}\0".encode() in (folder / "environ").read_bytes() and is_running(int(folder.name)):
                found.append(int(folder.name))
    return found


def kill(place: Place, run: subprocess.Popen[str], whom: tuple[str, ...]) -> bool:
    """Whether there was somebody to be killed."""
    script = place.pid()
    between = guards(script, run.pid)
    pids = {RUN: run.pid, **dict(zip((INNER, OUTER), between, strict=False))}
    if len(between) != 2 or run.poll() is not None:  # it has ended by itself
        return False
    for pid in [pids[name] for name in whom]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(whom)


def limit(place: Place, monkeypatch: pytest.MonkeyPatch) -> float:
    from zeus.device.find import find

    for name in ("ZEUS_GPU", "ZEUS_VIRTUAL_STATE"):
        monkeypatch.setenv(name, place.env[name])
    return find()[0].limit()


def ends(place: Place) -> dict[int, int]:
    """How often an end of each trial was told."""
    told = [one for one in place.store().log("toy").events if isinstance(one, Trial) and one.ended is not None]
    return Counter(one.number for one in told)


def last_wish(run: subprocess.Popen[str]) -> str:
    """Ask a run that nobody killed to end, and what it says."""
    if run.poll() is None:
        run.send_signal(signal.SIGTERM)
    return run.communicate(timeout=PATIENCE_SECONDS)[1]


def test_nothing_outlives_a_trial_whatever_it_does_and_whoever_is_killed(
    chaos: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    while chaos.going():
        whom = chaos.dice.choice(KILLS)
        place = Place(tmp_path / str(chaos.did["rounds"]))
        place.folder.mkdir()
        mark = f"{chaos.seed}-{chaos.did['rounds']}-{os.getpid()}"
        detached = not {INNER, OUTER} <= {*whom}  # one guard at least is left
        place.script(GENTLE, before=hostile(chaos.dice, detached))
        place.job(power_limits=[150], more=f'env = {{ CHAOS_ROUND = "{mark}" }}')
        run = place.start(STEPS="100000")
        try:
            one_round(chaos, place, run, whom, mark, monkeypatch)
        finally:
            for pid in [run.pid, *marked(mark)]:
                if run.poll() is None or pid != run.pid:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            run.communicate()


def one_round(
    chaos: Any,
    place: Place,
    run: subprocess.Popen[str],
    whom: tuple[str, ...],
    mark: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    eventually(lambda: (place.folder / "ready").exists() or run.poll() is not None)
    time.sleep(chaos.dice.random() * 0.5)
    script = place.pid()
    if killed := kill(place, run, whom):
        chaos.count("kills", len(whom))
    if not (killed and RUN in whom):
        said = last_wish(run)
        own = [
            line for line in said.split("\n") if not line.lstrip().startswith("|")
        ]  # without what the script printed
        chaos.held("Traceback" not in "\n".join(own), f"zeus run fails with a sentence, not {said}")
        open_trials = [one for one in place.store().trials("toy") if one.trial.ending is Ending.OPEN]
        chaos.held(not open_trials, f"a run that ends gives its trials up: {open_trials} after {whom}")
    run.communicate(timeout=PATIENCE_SECONDS)
    chaos.count("runs")
    if killed and len(whom) == 3:
        wait(chaos, lambda: not is_running(script), f"the script dies with all of {whom}")
    else:
        wait(chaos, lambda: not marked(mark), f"nothing lives on after {whom}")
    wait(chaos, lambda: limit(place, monkeypatch) == LIMIT, f"the limit comes back after {whom}")
    told = ends(place)
    chaos.count("trials", place.store().count("toy"))
    chaos.held(all(times == 1 for times in told.values()), f"no trial is told twice: {told}")
    if all(one.trial.ending is not Ending.CRASHED for one in place.store().trials("toy")):
        (place.folder / "ready").unlink(missing_ok=True)
        place.script(GENTLE)
        done = place.run()
        chaos.held(done.returncode == 0, f"the next run works at once: {done.stderr}")


def wait(chaos: Any, is_so: Any, promise: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.05)
    chaos.held(is_so(), promise)
