"""Recurrences by cron and by a systemd timer: the lines of the examples are run as cron and systemd run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import EXAMPLES, ROOT
from support.systemd_unit import INSTALLED, SystemdUnit, analyze, needs_systemd_analyze
from support.waiting import PATIENCE_SECONDS
from zeus.store import open_store

CRONTAB = EXAMPLES / "cron" / "crontab"
SERVICE, TIMER = (EXAMPLES / "systemd" / f"zeus-job@.{kind}" for kind in ("service", "timer"))
HERE = f"{Path(sys.executable).parent}/"
BUSY = 'flock "$HOME/jobs/sentiment/.lock" sh -c "$1"'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a user with a job and a virtual card."""
    folder = tmp_path / "jobs" / "sentiment"
    folder.mkdir(parents=True)
    (folder / "examples").symlink_to(EXAMPLES)
    job = (EXAMPLES / "unmodified.toml").read_text()
    (folder / "job.toml").write_text(job.replace("target_metric = 0.4", "target_metric = 1.5"))  # after a few epochs
    config = tmp_path / ".config" / "zeus" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('gpu = "virtual:v100?clock=virtual"\n')
    return tmp_path


def recurrences(home: Path) -> list[int]:
    """The recurrences that are in this user's store, one for each trial."""
    path = home / ".local" / "share" / "zeus" / "zeus.db"
    return [one.trial.ask.recurrence for one in open_store(f"sqlite:///{path}").trials("unmodified")]


def crontab(text: str, home: Path) -> tuple[dict[str, str], str, str]:
    """The variables, the schedule and the command of a crontab, read as cron reads it (see crontab(5))."""
    variables = {"HOME": str(home), "LOGNAME": "me", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in lines:
        if named := re.fullmatch(r"(\w+)\s*=\s*(.*)", line):
            variables[named[1]] = named[2].strip("\"'")
    [entry] = [line for line in lines if not re.match(r"\w+\s*=", line)]
    schedule, command = re.fullmatch(r"((?:\S+\s+){5})(.*)", entry).groups()  # type: ignore[union-attr]
    assert re.search(r"(?<!\\)%", command) is None, "cron would end the command here"
    return variables, schedule.strip(), command.replace(r"\%", "%")


def by_cron(home: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the example's command as cron does: in the home folder, with a shell and few variables."""
    variables, _, command = crontab(CRONTAB.read_text().replace(INSTALLED[:-1], HERE[:-1]), home)
    words = [variables["SHELL"], "-c", before, "sh", command] if before else [variables["SHELL"], "-c", command]
    return subprocess.run(
        words, env=variables, cwd=home, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


needs_flock = pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not installed (util-linux)")


@needs_flock
def test_cron_runs_a_recurrence_and_skips_one_whose_predecessor_still_runs(home: Path) -> None:
    assert re.fullmatch(r"(\d+|\*)( (\d+|\*)){4}", crontab(CRONTAB.read_text(), home)[1])
    done = by_cron(home)
    log = (home / "jobs" / "sentiment" / "zeus.log").read_text()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), log
    assert set(recurrences(home)) == {1}, log
    skipped = by_cron(home, before=BUSY)
    assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")
    assert set(recurrences(home)) == {1}
    assert by_cron(home).returncode == 0
    assert set(recurrences(home)) == {1, 2}


def unit(home: Path) -> SystemdUnit:
    return SystemdUnit.read(SERVICE.read_text(), i="sentiment", h=str(home))


def test_a_timers_service_runs_a_recurrence_with_no_more_than_its_own_variables(home: Path) -> None:
    service = unit(home)
    variables = {name: text.replace(INSTALLED[:-1], HERE[:-1]) for name, text in service.environment.items()}
    done = subprocess.run(
        service.command(),
        env={"HOME": str(home), "LANG": "C.UTF-8", **variables},
        cwd=service["WorkingDirectory"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(recurrences(home)) == {1}


@needs_systemd_analyze
def test_systemd_accepts_the_service_and_its_timer(tmp_path: Path) -> None:
    for path in (SERVICE, TIMER):
        (tmp_path / path.name).write_text(path.read_text().replace(INSTALLED, HERE))
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    found = analyze("verify", "--user", "--man=no", tmp_path / SERVICE.name, tmp_path / TIMER.name, env=env)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")
    timer = SystemdUnit.read(TIMER.read_text(), i="sentiment")
    [calendar] = timer.sections["Timer"]["OnCalendar"]
    assert analyze("calendar", calendar).returncode == 0
    assert analyze("calendar", "*-*-* 25:00:00").returncode != 0


def test_the_page_shows_the_lines_of_the_examples() -> None:
    page = (ROOT / "docs" / "running.md").read_text()
    for path in (CRONTAB, SERVICE, TIMER):
        assert f'--8<-- "{path.relative_to(ROOT)}"' in page
