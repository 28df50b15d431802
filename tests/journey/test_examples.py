"""Every example runs by the command that it gives, and prints what its reader looks for."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import EXAMPLES, ROOT, SOURCES
from support.waiting import PATIENCE_SECONDS

COMMAND = re.compile(r"^(?:# +)?((?:[A-Z_]+=\S+ )*(?:python|torchrun|zeus|sh) .+)$", re.MULTILINE)
SAID = {  # a pattern of the output, which is stdout and stderr
    "measure.py": r"batch size  32: +\d+ J in .+\neverything: \d+ J, \d+ W on average",
    "listing1.py": r"zeus: reached 0\.97.* saved",
    "huggingface_trainer.py": r"zeus/joules.*175 W in place of 250 W: saved",
    "lightning_trainer.py": r"175 W in place of 250 W: saved.*zeus/joules",
    "ddp.py": r"accuracy 0\.9[78].* J on both GPUs at 175 W",
    "drift.py": r"paper +window  0: .*structured window 10: ",
    "own_policy.py": r"own_policy:Cheapest.*paper.*default",
    "service.sh": r"recurrence 2: batch size \d+ reached the target.*listing1 ",
    "unmodified.toml": r"recurrence 3: batch size \d+ reached the target",
}
PACKAGES = {"huggingface_trainer.py": "transformers", "lightning_trainer.py": "lightning"}
ELSEWHERE = {  # which test runs the others
    "job.toml": "service.sh here",
    "unmodified.py": "unmodified.toml here",
    "optuna_study.py": "tests/journey/tuning/test_optuna.py",
    "ray_tune_search.py": "tests/journey/tuning/test_ray_tune.py",
    "ray_job.toml": "tests/unit/launch/job_file/test_reader.py",
    "slurm_array.toml": "tests/journey/launch/placement/test_slurm.py",
}


@pytest.mark.usefixtures("warm_frameworks")
@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_as_it_says(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip(PACKAGES.get(name, "zeus"))
    (tmp_path / "examples").symlink_to(EXAMPLES)
    programs = tmp_path / "bin"
    programs.mkdir()
    starts = {"python": "", "zeus": "-m zeus.cli", "torchrun": "-m torch.distributed.run"}
    for program, start in starts.items():
        (programs / program).write_text(f'#!/bin/sh\nexec {sys.executable} {start} "$@"\n')
        (programs / program).chmod(0o755)
    found = COMMAND.search((EXAMPLES / name).read_text("utf-8"))
    assert found, "the example does not say how to run it"
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
    env = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PORT": str(port),
        "PYTHONPATH": str(SOURCES),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "ZEUS_VIRTUAL_STATE": str(tmp_path / "cards"),
        "ZEUS_KEEPER_STATE": str(tmp_path / "keeper"),
        "HF_HUB_OFFLINE": "1",
    }
    command = found[1].replace("PYTHONPATH=", f"PYTHONPATH={SOURCES}{os.pathsep}")
    command = command.replace(
        "ZEUS_GPU=virtual:v100 ", "ZEUS_GPU='virtual:v100?clock=virtual' "
    )  # who reads it has the time
    done = subprocess.run(
        ["sh", "-c", f"{command} 2>&1"],
        cwd=tmp_path,
        env=env,
        text=True,
        capture_output=True,
        timeout=3 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(SAID[name], done.stdout, re.DOTALL), done.stdout


def test_every_example_is_short_and_has_a_test() -> None:
    files = [path for path in EXAMPLES.iterdir() if path.is_file()]
    assert {path.name for path in files} == {*SAID, *ELSEWHERE}
    for path in files:
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        assert len(lines) <= 50, path.relative_to(ROOT)
