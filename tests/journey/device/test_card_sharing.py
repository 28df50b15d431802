"""Who sees which virtual cards: a named file is for all, others are for one process and what Zeus starts for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from support.launch_place import Place, tries
from support.programs import python_env, run_python
from support.waiting import PATIENCE_SECONDS, eventually

CARD = "from zeus.device.find import find; card = find()[0]; "
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
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return python_env(without=("ZEUS_", "CUDA_", "SLURM_", "RANK", "LOCAL_")) | {
        "ZEUS_GPU": "virtual:v100?clock=virtual",
        "XDG_RUNTIME_DIR": str(runtime),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }


def left_behind(env: dict[str, str]) -> list[Path]:
    """What private cards have left in the user's folder."""
    return list((Path(env["XDG_RUNTIME_DIR"]) / "zeus" / "virtual").glob("*"))


def python(env: dict[str, str], code: str, *before: str) -> str:
    return run_python("-c", code, env=env, around=before).stdout


@pytest.mark.parametrize("gpu", ["virtual:v100", "virtual:v100?clock=virtual"])
def test_cards_that_nobody_named_are_private_to_the_process(env: dict[str, str], gpu: str) -> None:
    env["ZEUS_GPU"] = gpu
    assert python(env, CARD + "card.set_limit(125); print(card.limit())") == "125.0\n"
    assert python(env, CARD + "print(card.limit())") == "250.0\n"
    assert left_behind(env) == []  # gone with their processes


@pytest.mark.parametrize("gpu", ["virtual:v100", "virtual:v100?clock=virtual"])
def test_cards_that_are_named_are_shared_by_all(env: dict[str, str], tmp_path: Path, gpu: str) -> None:
    env |= {"ZEUS_GPU": gpu, "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards")}
    python(env, CARD + "card.set_limit(125)")
    assert python(env, CARD + "print(card.limit())") == "125.0\n"
    assert left_behind(env) == []


def test_a_forked_child_uses_the_cards_of_its_parent_and_leaves_them(env: dict[str, str]) -> None:
    fork = "import os, sys; child = os.fork(); child or (card.set_limit(125), sys.exit()); os.waitpid(child, 0); "
    again = "from zeus.device.virtual.machine import own_state; print(card.limit(), own_state().exists())"
    assert python(env, CARD + fork + again) == "125.0 True\n"
    assert left_behind(env) == []


def test_a_measured_command_uses_the_cards_that_are_measured(env: dict[str, str]) -> None:
    measure = (sys.executable, "-m", "zeus.cli", "measure", "--json")
    report = json.loads(python(env, CARD + "card.clock.sleep(5)", *measure, "--"))
    assert report["seconds"] == 5.0
    assert left_behind(env) == []


def test_a_keeper_sets_the_limits_of_private_cards_and_restores_them(env: dict[str, str]) -> None:
    lend = "from zeus.device.keeper import lend; lease = lend([card]); lease.set_limit(125); print(card.limit()); "
    told = python(env, CARD + lend + "lease.release(); print(card.limit())")
    assert told.split() == ["125.0", "250.0"]
    eventually(lambda: left_behind(env) == [])


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
    tell = "import sys; print(card.spec.uuid, flush=True); sys.stdin.read()"
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    assert run_python(str(tmp_path / "launcher.py"), CARD + tell, env=env).stdout == "1\n"


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
    eventually(lambda: left_behind(env) == [])
