"""`zeus demo`, shortened: it trains for real, touches nothing of the user's, and leaves a store for `zeus jobs`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS
from support.warm.fixtures import warm_here
from zeus_energy import install_command

if importlib.util.find_spec("torch") is None:
    pytest.skip("the demo trains a PyTorch model: pip install torch", allow_module_level=True)


WARM = warm_here()


def environment(folder: Path) -> dict[str, str]:
    """A user who has a store, a mode and a GPU of their own, none of which is the demo's business."""
    theirs = {name: value for name, value in os.environ.items() if not name.startswith("ZEUS_")}
    return theirs | {
        "PYTHONPATH": str(SOURCES),
        "XDG_DATA_HOME": str(folder / "data"),
        "ZEUS_STORE": f"sqlite:///{folder}/mine.db",
        "ZEUS_VIRTUAL_STATE": str(folder / "my-cards"),
        "ZEUS_MODE": "off",
        "ZEUS_READ_ONLY": "1",
        "ZEUS_BATCH_SIZE": "7",
        "WARM_PYTHON": str(WARM.address("torch") or ""),
    }


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = environment(folder)
    command = [str(WARM.python) if WARM.python.exists() else sys.executable, "-m", "zeus.cli", *arguments]
    return subprocess.run(
        command,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        cwd=folder,
    )


@dataclass
class Demo:
    """What a demonstration said and left."""

    folder: Path
    report: dict[str, Any]
    progress: list[str]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """One short demonstration for all tests of this file."""
    folder = tmp_path_factory.mktemp("demo")
    old = folder / "data" / "zeus" / "demo" / "old"
    old.parent.mkdir(parents=True)
    old.write_text("of an earlier demonstration")
    done = call(folder, "demo", "--recurrences", "3", "--default-runs", "1", "--json")
    assert done.returncode == 0, done.stderr
    return Demo(folder, json.loads(done.stdout), done.stderr.splitlines())


def test_a_line_is_said_for_each_recurrence_and_at_the_end_what_was_saved(demo: Demo) -> None:
    told = [one.split() for one in demo.progress]
    lines = [one for one in told if one and one[0].partition(".")[0].isdecimal()]
    first_tries = [one for one in lines if "." not in one[0]]
    assert [one[0] for one in first_tries] == ["1", "1", "2", "3"]
    assert [int(one[1]) for one in first_tries[1:]] == [1024, 512, 256]
    assert all(one[0].startswith("3.") for one in lines if one not in first_tries), "the others are its further tries"
    (table,) = [at for at, one in enumerate(told) if one == ["size", "limit", "energy", "time", "cost"]]
    assert told[table + 1][:2] == ["default", "1024"]
    assert told[table + 2][0] == "Zeus,"


def test_the_report_adds_up(demo: Demo) -> None:
    report = demo.report
    assert report["recurrences"] == 3
    assert all(one["end"] == "converged" for one in report["history"])
    used = sum(one["joules"] for one in report["tries"])
    assert report["saving"]["joules"] == pytest.approx(3 * report["default"]["joules"] - used)
    assert report["recent"]["joules"] == pytest.approx(used / 3)
    assert report["default"]["limit_watts"] == 250
    assert {one["limit_watts"] for one in report["tries"]} <= set(range(100, 251, 25))
    assert report["limit_before_watts"] == report["limit_after_watts"] == 250


def test_what_it_leaves_is_read_by_the_command_that_it_prints(demo: Demo) -> None:
    (look,) = [one for one in demo.progress if one.startswith("Next:")]
    command = look.split()[1:]
    assert command[:4] == ["zeus", "jobs", "show", "demo"]
    done = call(demo.folder, *command[1:], "--json")
    shown = json.loads(done.stdout)
    assert shown["tries"] == [{k: v for k, v in one.items() if k != "limit_watts"} for one in demo.report["tries"]]
    assert {row["batch_size"]: row["limit_watts"] for row in shown["sizes"]}[1024] is not None
    listed = json.loads(call(demo.folder, "jobs", "list", "--json", "--store", demo.report["store"]).stdout)
    assert [one["job"] for one in listed] == ["demo", "demo-default"]


def test_the_default_that_a_job_infers_from_its_profile_is_the_one_that_is_measured(demo: Demo) -> None:
    shown = json.loads(call(demo.folder, "jobs", "show", "demo", "--json", "--store", demo.report["store"]).stdout)
    inferred, measured = shown["default"], demo.report["default"]
    assert inferred["limit_watts"] == measured["limit_watts"]
    for name in ("joules", "seconds", "cost"):
        assert inferred[name] / inferred["epochs"] == pytest.approx(measured[name] / measured["epochs"], rel=0.05)


def test_the_folder_holds_the_report_and_nothing_of_an_earlier_demonstration(demo: Demo) -> None:
    folder = Path(demo.report["folder"])
    assert {"report.json", "report.txt", "zeus.db"} <= {one.name for one in folder.iterdir()}
    assert not (folder / "old").exists()
    assert json.loads((folder / "report.json").read_text()) == demo.report
    assert (folder / "report.txt").read_text().splitlines() == demo.progress


def test_nothing_of_the_users_is_touched(demo: Demo) -> None:
    assert sorted(one.name for one in demo.folder.iterdir()) == ["data"]
    assert sorted(one.name for one in (demo.folder / "data" / "zeus").iterdir()) == ["demo"]


def test_without_torch_it_says_how_to_get_it(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from zeus.cli.main import main; main(['demo'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert install_command("torch") in done.stderr
    assert list(tmp_path.iterdir()) == []
