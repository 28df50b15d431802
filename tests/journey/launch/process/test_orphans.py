"""Whatever kills `zeus run` or its guard, nothing that the command started lives on."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.launch_place import Place, guards, is_running
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.device.find import find
from zeus.job import Ending

# As torchrun starts its workers, each in a session of its own; and these will not be asked to end.
WORKERS = """
import subprocess
will_not = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
for alone in (False, True):
    worker = subprocess.Popen([sys.executable, "-c", will_not], stdout=subprocess.PIPE, start_new_session=alone)
    worker.stdout.readline()
    with open("workers", "a") as file: print(worker.pid, file=file)
pathlib.Path("ready").touch()
"""
SHORT = limits(grace=1.0, leftovers=0.5)
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path)
    here.env["ZEUS_TIME_LIMITS"] = SHORT
    here.script(before=WORKERS)
    here.job(power_limits=[150])
    yield here
    for pid in (tmp_path / "workers").read_text().split() if (tmp_path / "workers").exists() else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def workers(place: Place) -> list[int]:
    eventually((place.folder / "ready").exists)
    return [int(line) for line in (place.folder / "workers").read_text().split()]


def all_gone(place: Place, *pids: int) -> None:
    for pid in (*workers(place), *pids):
        eventually(lambda pid=pid: not is_running(pid), lambda: f"{place.folder} lives on")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("which", "deaf"),
    [(0, False), (-1, False), (-1, True)],  # without its inner guard a script is killed and never asked
    ids=["inner", "outer", "outer, deaf"],
)
def test_a_run_and_a_guard_that_are_killed_together_take_all_along(place: Place, which: int, deaf: bool) -> None:
    place.script(before=(DEAF if deaf else "") + WORKERS)
    process = place.start(STEPS="100000")
    script, started = place.pid(), workers(place)
    guard = guards(script, process.pid)[which]
    process.send_signal(signal.SIGSTOP)  # so that it cannot see the guard go
    os.kill(guard, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    all_gone(place, script, *started)


def test_a_script_dies_with_all_that_guard_it(place: Place) -> None:
    place.script(before=DEAF + "pathlib.Path('ready').touch()")
    process = place.start(STEPS="100000")
    script = place.pid()
    eventually((place.folder / "ready").exists)
    for pid in (process.pid, *reversed(guards(script, process.pid))):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE_SECONDS)
    eventually(lambda: not is_running(script))


@pytest.mark.parametrize("which", [0, -1], ids=["inner", "outer"])
def test_a_guard_that_is_killed_costs_the_trial_and_no_size(place: Place, which: int) -> None:
    process = place.start(STEPS="100000")
    script, started = place.pid(), workers(place)
    os.kill(guards(script, process.pid)[which], signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, "from outside by SIGKILL" in err) == (1, True), err
    assert not any(map(is_running, (script, *started)))  # the next trial finds the GPU free
    assert place.store().trial("toy", 1).trial.ending is Ending.LOST


def test_a_script_may_speak_while_it_saves_its_work_after_its_run_was_killed(place: Place) -> None:
    saves = """
def save(*_):
    print("x" * 1_000_000, flush=True)
    pathlib.Path("saved").touch()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
pathlib.Path("ready").touch()
"""
    place.script(before=saves)
    process = place.start(STEPS="100000", ZEUS_TIME_LIMITS=limits(grace=PATIENCE_SECONDS))
    eventually((place.folder / "ready").exists)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    eventually((place.folder / "saved").exists)


# ---------------------------------------------------------------------------------------------------- Ctrl-Z


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_run_that_is_stopped_stops_all_of_its_training_and_goes_on_with_it(place: Place) -> None:
    gate = "while not pathlib.Path('go').exists(): time.sleep(0.02)\n"
    place.script(before=WORKERS + gate)
    process = place.start("--json")
    pids = [place.pid(), *workers(place)]
    process.send_signal(signal.SIGTSTP)  # Ctrl-Z
    eventually(lambda: [state(pid) for pid in (process.pid, *pids)] == ["T"] * 4)
    process.send_signal(signal.SIGCONT)  # fg
    eventually(lambda: "T" not in {state(pid) for pid in pids})
    (place.folder / "go").touch()
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0


def test_a_stopped_run_that_is_killed_leaves_nothing_stopped_behind(place: Place) -> None:
    process = place.start(STEPS="100000")
    pids = [place.pid(), *workers(place)]
    process.send_signal(signal.SIGTSTP)
    eventually(lambda: [state(pid) for pid in pids] == ["T"] * 3)
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    all_gone(place, *pids)


KEEPING = """
from zeus.device.keeper import lend
lease = lend(gpus)
lease.set_limit(125)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("ready").touch()
"""


def test_a_script_that_is_killed_has_its_limit_put_back_by_its_own_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.env["ZEUS_TIME_LIMITS"] = SHORT
    for name in ("ZEUS_GPU", "ZEUS_VIRTUAL_STATE"):
        monkeypatch.setenv(name, place.env[name])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    place.script(before=KEEPING)
    place.job(mode="off")
    process = place.start(STEPS="100000")
    eventually((tmp_path / "ready").exists)
    script = place.pid()
    assert find()[0].limit() == 125
    process.kill()
    process.communicate(timeout=PATIENCE_SECONDS)
    eventually(lambda: not is_running(script))
    eventually(lambda: find()[0].limit() == 250)


def test_a_command_in_a_group_of_its_own_is_asked_before_it_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    saving = "signal.signal(signal.SIGINT, lambda *_: (pathlib.Path('saved').touch(), sys.exit()))\n"
    place.script(before=f"os.setpgid(0, 0)\n{saving}pathlib.Path('ready').touch()\n")
    place.job()
    process = place.start(STEPS="100000")
    eventually((tmp_path / "ready").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert (tmp_path / "saved").exists()
