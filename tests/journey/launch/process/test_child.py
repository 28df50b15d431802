"""A trial's command, whatever becomes of it, of its guard and of what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.launch_place import Place, is_running
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.launch.job_file.values import MetricsSource
from zeus.launch.process.child import Child
from zeus.launch.process.output import LogFile, Output
from zeus.launch.script_events import Line
from zeus.launch.script_lines import ScriptLines, reader_of

# Starts a process that holds its output open: a daemon with a session of its own, or one that will not be asked to end.
OTHER = """
import pathlib, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
other = subprocess.Popen(["sleep", "600"], start_new_session={daemon})
pathlib.Path("other").write_text(str(other.pid))
signal.signal(signal.SIGTERM, signal.SIG_DFL)
"""
SHORT = limits(leftovers=0.2)


def other(folder: Path) -> int:
    file = folder / "other"
    eventually(lambda: file.exists() and file.read_text() != "")
    return int(file.read_text())


def script(folder: Path, text: str) -> Child:
    (folder / "script.py").write_text(f"import os\nos.chdir({str(folder)!r})\n{text}")
    return Child([sys.executable, "script.py"], os.environ, folder / "log")


@pytest.mark.parametrize("daemon", [False, True])
def test_what_a_command_leaves_behind_is_ended_even_if_it_will_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEUS_TIME_LIMITS", SHORT)
    with script(tmp_path, OTHER.format(daemon=daemon)) as child:
        assert child.wait(PATIENCE_SECONDS) == 0
        assert not is_running(other(tmp_path))  # the next trial finds the GPU free


def test_a_command_may_begin_a_session_of_its_own(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script()
    place.job(command="setsid python train.py {batch_size} x")
    assert place.report()["recurrences"][0]["converged"]


def test_a_run_that_is_to_outlive_its_terminal_does(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script(before="while not pathlib.Path('go').exists(): time.sleep(0.02)")
    place.job()
    command = [sys.executable, "-m", "zeus.cli", "run", "job.toml", "--json"]
    with subprocess.Popen(["nohup", *command], env=place.env, cwd=tmp_path, stdout=subprocess.DEVNULL) as run:
        place.pid()
        run.send_signal(signal.SIGHUP)
        (tmp_path / "go").touch()
        assert run.wait(PATIENCE_SECONDS) == 0


# ---------------------------------------------------------------------------------------------------- its output


@contextmanager
def follow(written: bytes, log: Path, metrics: MetricsSource) -> Iterator[list[Line]]:
    """The lines of an output that nobody ends."""
    there, here = os.pipe()
    lines, found = ScriptLines(reader_of(metrics), lambda: None), list[Line]()
    output = Output(there, LogFile(log), lines.receive)
    os.write(here, written)
    try:
        output.close()
        lines.close()
        while (seen := lines.next(PATIENCE_SECONDS)) is not None:
            found.append(seen[0])
        yield found
    finally:
        os.close(here)


def test_a_disk_that_is_full_costs_the_log_and_no_line() -> None:
    with follow(b"acc=0.5\nacc=0.6\n", Path("/dev/full"), MetricsSource(regex=r"acc=(\S+)")) as found:
        assert [one.metric for one in found] == [0.5, 0.6]


def test_binary_output_and_lines_that_have_no_end_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    written = b"\xff\xfe acc=0.5\r" + b"x" * 50_000 + b"\rhalf acc=0.6 ... acc=0.7\n\nacc=0.8"
    with follow(written, tmp_path / "log", MetricsSource(regex=r"acc=(\S+)")) as found:
        assert [one.metric for one in found] == [0.5, 0.6, 0.8]
    assert (tmp_path / "log").read_bytes() == written
