"""A command that is tied to its parent ends by SIGTERM with it, and is alone under its name."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

from support.waiting import PATIENCE_SECONDS

# Starts a tied command that says so when it gets SIGTERM, tells its pid, and waits.
PARENT = """
import os, signal, subprocess, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM])  # as Ray does; and masks are inherited
child = "import signal, sys, time; signal.signal(15, lambda *_: (print('asked to end', flush=True), sys.exit(0)));"
child += "print('running', flush=True); time.sleep(600)"
subprocess.Popen(
    [sys.executable, "-m", "zeus.launch.process.tied", str(os.getpid()), sys.argv[1], sys.executable, "-c", child],
    start_new_session=True,
).wait()
"""


def parent(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_command_gets_sigterm_when_its_parent_is_killed() -> None:
    first = parent(uuid4().hex)
    assert line(first) == "running"
    first.kill()
    assert line(first) == "asked to end"
    first.communicate(timeout=PATIENCE_SECONDS)


def test_the_second_of_a_name_waits_for_the_first_to_end() -> None:
    name = uuid4().hex
    first = parent(name)
    assert line(first) == "running"
    second = parent(name)
    assert second.stderr is not None
    assert "an earlier start of this run is still ending" in second.stderr.readline()
    first.kill()
    assert line(second) == "running"
    second.kill()
    for one in (first, second):
        one.communicate(timeout=PATIENCE_SECONDS)


def test_a_program_that_is_not_there_is_named() -> None:
    tied = f"[{sys.executable!r}, '-m', 'zeus.launch.process.tied', str(os.getpid()), 'x', '/no/such']"
    script = f"import os, subprocess, sys; sys.exit(subprocess.run({tied}).returncode)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert done.stderr == "zeus: /no/such cannot be run on this node: No such file or directory.\n"
