"""A program that starts warm does what it does when it starts as everywhere else: many tests rely on that."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.keeper_place import is_dead
from support.waiting import PATIENCE_SECONDS, eventually
from support.warm import REAL
from support.warm.fixtures import warm_here

if shutil.which("gcc") is None:
    pytest.skip("needs gcc: apt-get install gcc libc6-dev", allow_module_level=True)

SCRIPT = """
import atexit, os, sys, threading
atexit.register(print, "at exit")
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
print(sys.argv, __name__, __file__, os.getcwd(), os.environ.get("COLOUR"), sys.stdin.read(), sys.path[0])
"""
PROGRAMS = {
    "a script": ["script.py", "-x", "a b"],
    "a script in a folder": ["folder/script.py"],
    "a line": ["-c", "import sys; print(sys.argv, repr(sys.path[0]), __name__)", "1"],
    "a module": ["-m", "json.tool", "numbers.json"],
    "isolated": ["-I", "-S", "-c", "import sys; print(sys.path[:1] == [''])"],
    "an exit code": ["-c", "raise SystemExit(7)"],
    "a last word": ["-c", "raise SystemExit('no')"],
    "an exception": ["-c", "def f(): 1 / 0\nf()"],
    "a wrong script": ["-c", "1 +"],
    "a signal": ["-c", "import os; os.kill(os.getpid(), 15)"],
    "an interrupt": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT)"],
    "a hard end": ["-c", "import os; print('lost'); os._exit(3)"],
    "an inherited file": ["-c", "import os; os.write(int(os.environ['FILE']), b'here')"],
}


def run(python: str, program: list[str], folder: Path, **more: str) -> tuple[int, bytes, bytes, bytes]:
    reader, writer = os.pipe()
    done = subprocess.run(
        [python, *program],
        cwd=folder,
        env={**os.environ, "COLOUR": "red", "FILE": str(writer), **more},
        input=b"typed",
        capture_output=True,
        pass_fds=[writer],
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    os.close(writer)
    with os.fdopen(reader, "rb") as read:
        return done.returncode, done.stdout, done.stderr, read.read()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_copy_does_what_a_new_interpreter_does(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    for file in ("script.py", "folder/script.py"):
        (tmp_path / file).write_text(SCRIPT)
    (tmp_path / "numbers.json").write_text("[1, 2]")
    program, warm = PROGRAMS[name], warm_here()
    assert run(str(warm.python), program, tmp_path, WARM_PYTHON=warm.address("zeus")) == run(REAL, program, tmp_path)


def test_a_copy_has_zeus_imported_and_an_interpreter_that_must_differ_is_a_new_one() -> None:
    warm = warm_here()
    env = {**os.environ, "WARM_PYTHON": warm.address("zeus")}
    look = ["-c", "import sys; print('zeus.cli.run' in sys.modules, 'torch' in sys.modules)"]

    def seen(*flags: str, **more: str) -> str:
        call = [str(warm.python), *flags, *look]
        return subprocess.run(call, env=env | more, capture_output=True, text=True, check=True).stdout.strip()

    assert seen() == "True False"
    assert seen("-W", "error") == seen(LD_LIBRARY_PATH="/nowhere") == seen(PYTHONOPTIMIZE="1") == "False False"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_signal_reaches_the_copy(number: signal.Signals) -> None:
    warm = warm_here()
    with subprocess.Popen(
        [str(warm.python), "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"],
        env={**os.environ, "WARM_PYTHON": warm.address("zeus")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        copy = int(process.stdout.readline())
        assert copy != process.pid
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == -number
    eventually(lambda: is_dead(copy))
