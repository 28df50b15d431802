"""Python programs that a test runs to their end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS

# Around a program: a network of its own, in which its ranks find each other over the loopback.
LOOPBACK_ALONE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def python_env(
    environ: Mapping[str, str] | None = None, *, without: tuple[str, ...] = (), **more: str
) -> dict[str, str]:
    """The variables for a program, with this package on its path.

    Args:
        environ: Those to begin with. None: this process's.
        without: Beginnings of names that it does not get.
        more: Further variables.
    """
    inherited = {name: text for name, text in (environ or os.environ).items() if not name.startswith(without)}
    path = os.pathsep.join([str(SOURCES), inherited.get("PYTHONPATH", "")])
    return {**inherited, "PYTHONPATH": path, **more}


def run_python(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    around: Sequence[str] = (),
    code: int = 0,
    patience: float = PATIENCE_SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run this Python with these arguments. It must end with this exit code.

    Args:
        arguments: What follows `python`.
        env: Its variables. None: `python_env()`.
        cwd: Its folder.
        around: A command that runs it.
        code: The exit code.
        patience: How long it may take, in seconds.
    """
    done = subprocess.run(
        [*around, sys.executable, *arguments],
        env=python_env() if env is None else env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=patience,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def need_loopback_alone() -> None:
    """Skip the test if no program can have a network of its own."""
    if subprocess.run([*LOOPBACK_ALONE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a network of its own: root, and the commands unshare and ip")
