"""Tiny disks under the logs, full at the start, filled or freed meanwhile: a log may suffer, a training never does.

For `make test` the usual ones have tests of their own in journey/launch/process/test_output.py.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.disks import fill, free, size, tiny_disk
from support.launch_place import Place, tries
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.launch.process.output import RESERVED_SHARE

pytestmark = pytest.mark.usefixtures("warm")

# What a training does that speaks for itself, without the weight of torch.
SPEAKS = """
import os, pathlib, sys, time
from zeus.job import Ending, Outcome
from zeus.client.catalog import find_job
{before}
outcome = Outcome(ending=Ending.CONVERGED, joules=500.0, seconds=2.0, epochs=2, metric=0.95)
find_job(os.environ["ZEUS_JOB_ID"]).tell(int(os.environ["ZEUS_TRIAL"]), outcome)
"""
# Writes some, waits until the disk was seen to, and writes the rest.
WRITES = """
for n in range({first}): print("x" * {width}, flush=True)
pathlib.Path("half").touch()
while not pathlib.Path("go").exists(): time.sleep(0.02)
for n in range({rest}): print("y" * {width}, flush=True)
"""


def finished(run: subprocess.Popen[str], place: Place, then: Any) -> tuple[str, str]:
    """Do this when the command has written half of what it writes; what the run says in the end."""
    try:
        eventually(lambda: (place.folder / "half").exists() or run.poll() is not None)
        then()
        (place.folder / "go").touch()
        return run.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if run.poll() is None:
            run.kill()
            run.communicate()


def test_a_disk_that_fills_up_under_the_logs_harms_no_training(chaos: Any, tmp_path: Path) -> None:
    dice = chaos.dice
    while chaos.going():
        place = Place(tmp_path / str(chaos.did["rounds"]))
        place.folder.mkdir()
        before = WRITES.format(first=dice.randrange(400), rest=dice.randrange(400), width=dice.randrange(4000))
        style = dice.choice(["speaks", "end, then metric", "file"])
        place.job(style, metrics="" if style == "speaks" else None)
        if style == "speaks":
            (place.folder / "train.py").write_text(SPEAKS.format(before=before))
        else:
            place.script(style, before=before)
        with tiny_disk(place.folder / "disk", dice.choice([64, 256, 1024, 4096])) as disk:
            one_round(chaos, place, disk)


def one_round(chaos: Any, place: Place, disk: Path) -> None:
    when = chaos.dice.choice(["never", "first", "meanwhile", "at first only"])
    reserved = RESERVED_SHARE * size(disk)
    ballast = fill(disk, leave=chaos.dice.choice([0, 4096, int(2 * reserved)])) if "first" in when else None
    chaos.count("faults", when != "never")

    def meanwhile() -> None:
        if when == "meanwhile":
            fill(disk)
        elif when == "at first only" and ballast is not None:
            ballast.unlink()

    out, err = finished(place.start("--json", ZEUS_LOG_DIR=str(disk)), place, meanwhile)
    chaos.count("runs")
    chaos.held(out, f"a run reports, whatever its disk: {err}")
    endings = [one["ending"] for one in tries(json.loads(out))]
    chaos.count("trials", len(endings))
    chaos.held(endings == ["converged"], f"a disk that is full ({when}) harms no training: {endings}, {err}")
    if when in ("never", "at first only"):
        chaos.held(free(disk) >= reserved - 3 * 4096, f"logs leave the last of a disk alone: {free(disk)} bytes")
