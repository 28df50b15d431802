"""Virtual cards on a virtual clock are private to a tree of processes: its children see them, its neighbours do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place, tries
from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually

NOW = "from zeus.device.find import find; clock = find()[0].machine.clock; "
TELL = "print(clock.now(), __import__('os').environ['ZEUS_VIRTUAL_TREE'])"
TRAINING = """
import os, pathlib, time, torch
from zeus.training.loader import ZeusDataLoader

meeting, me, wanted = pathlib.Path(os.environ["MEETING"]), str(os.getpid()), int(os.environ["WANTED"])
loader = ZeusDataLoader(torch.utils.data.TensorDataset(torch.zeros(256, 1)), 16, max_epochs=6, target_metric=0.9)
for epoch in loader.epochs():
    (meeting / f"{me}-{epoch}").touch()
    while epoch < 2 and len(list(meeting.glob(f"*-{epoch}"))) < wanted:  # train at the same time as the others
        time.sleep(0.01)
    for _ in loader:
        pass
    loader.report_metric(0.3 * (epoch + 1))
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "CUDA_", "SLURM_", "RANK", "LOCAL_"))}
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    return {
        **clean,
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "PYTHONPATH": paths,
    }


def trees(env: dict[str, str]) -> list[Path]:
    """The folders of trees that are there."""
    parent = Path(env["XDG_RUNTIME_DIR"]) / "zeus" / "virtual-trees"
    return [one for one in parent.iterdir() if one.is_dir()] if parent.exists() else []


def python(env: dict[str, str], code: str, **more: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**env, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_children_share_the_cards_and_neighbours_do_not(env: dict[str, str]) -> None:
    child = f"import subprocess, sys; clock.sleep(5); subprocess.run([sys.executable, '-c', {NOW + TELL!r}])"
    first = python(env, NOW + child).split()
    second = python(env, NOW + TELL).split()
    assert (first[0], second[0]) == ("5.0", "0.0")
    assert first[1] != second[1]
    assert trees(env) == []  # gone with their processes


def test_cards_that_are_named_are_shared_by_all(env: dict[str, str], tmp_path: Path) -> None:
    env["ZEUS_VIRTUAL_STATE"] = str(tmp_path / "cards")
    python(env, NOW + "clock.sleep(5)")
    assert python(env, NOW + "print(clock.now())") == "5.0\n"
    assert trees(env) == []


def test_what_a_killed_process_leaves_is_removed_by_the_next(env: dict[str, str]) -> None:
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", NOW + kill], env=env, timeout=PATIENCE_SECONDS, check=False)
    assert len(trees(env)) == 1
    python(env, NOW + "clock.sleep(1)")
    assert trees(env) == []


CHILD = """
import os, time
from zeus.device.find import find
clock = find()[0].machine.clock
clock.sleep(1)
open("ready", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
open("seen", "w").write(str(clock.now()))
"""
PARENT = """
import os, subprocess, sys, time
from zeus.device.find import find
find()[0].machine.clock.sleep(5)
subprocess.Popen([sys.executable, "child.py"])
while not os.path.exists("ready"):
    time.sleep(0.01)
"""


def test_a_child_that_outlives_its_parent_keeps_the_cards(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD)
    (tmp_path / "parent.py").write_text(PARENT)
    subprocess.run([sys.executable, "parent.py"], env=env, cwd=tmp_path, timeout=PATIENCE_SECONDS, check=True)
    assert len(trees(env)) == 1
    (tmp_path / "go").touch()
    eventually(lambda: (tmp_path / "seen").exists() and (tmp_path / "seen").read_text() == "6.0")
    eventually(lambda: trees(env) == [])


LAUNCHER = """
import os, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, "-c", sys.argv[1]],
        env={**os.environ, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    for rank in "01"
]
told = [one.stdout.readline() for one in ranks]  # both run now
for one in ranks:
    one.communicate(b"go")
print(len(set(told)))
"""


def test_ranks_of_one_launcher_share_the_cards(env: dict[str, str], tmp_path: Path) -> None:
    tell = "import os, sys; print(os.environ['ZEUS_VIRTUAL_TREE'], flush=True); sys.stdin.read()"
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "launcher.py"), NOW + tell],
        env=env,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert trees(env) == []


@pytest.mark.usefixtures("warm_torch")
def test_two_runs_side_by_side_give_exactly_the_numbers_that_each_gives_alone(
    env: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("torch")

    def place(name: str, wanted: int) -> Place:
        folder = tmp_path / name
        folder.mkdir()
        here = Place(folder)
        for variable in ("ZEUS_VIRTUAL_STATE", "ZEUS_KEEPER_STATE"):
            del here.env[variable]
        meeting = tmp_path / f"meeting-{wanted if wanted > 1 else name}"
        meeting.mkdir(exist_ok=True)
        here.env |= {**env, "PATH": here.env["PATH"], "MEETING": str(meeting), "WANTED": str(wanted)}
        here.env["ZEUS_STORE"] = f"sqlite:///{folder / 'zeus.db'}"
        (folder / "train.py").write_text(TRAINING)
        here.job(metrics="", command="python train.py", policy="default", batch_sizes=[16])
        return here

    def numbers(report: dict[str, Any]) -> list[dict[str, Any]]:
        names = ("batch_size", "ending", "epochs", "joules", "seconds", "cost", "limits", "power_limit")
        return [{name: one[name] for name in names} for one in tries(report)]

    alone = numbers(place("alone", 1).report())
    both = [place(name, 2) for name in ("left", "right")]
    processes = [one.start("--json") for one in both]
    told = [process.communicate(timeout=PATIENCE_SECONDS) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    assert [numbers(json.loads(out)) for out, _ in told] == [alone, alone]
    eventually(lambda: trees(env) == [])
