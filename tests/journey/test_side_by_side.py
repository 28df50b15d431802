"""Another distribution of the package `zeus` in one environment: real wheels, installed over each other and removed.

No dependencies are installed, so that only files of the two meet, but msgspec: a monitor cannot be imported without it.
The commands that a message names are run as written.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import zeus
from support.environments import empty, skip_without_index
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.peers

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]
OLD = ("zeus==0.16.0", "zeus-ml==0.11.0.post1")
IMPORT = "python -c 'import zeus; print(zeus.__version__)'"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty(Path(sys.executable), tmp_path_factory.mktemp("both") / "env")


@pytest.fixture
def shell(python: Path, tmp_path: Path) -> Shell:
    """Runs a command line in the environment, in which nothing is installed yet."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ZEUS_", "PYTHON"))}
    env = {**clean, "PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_NO_DEPS": "1", "PIP_QUIET": "1"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
            timeout=PATIENCE_SECONDS,
        )  # fmt: skip

    run("pip uninstall -y zeus zeus-ml zeus-energy")
    return run


def install(shell: Shell, *what: str | Path) -> None:
    for one in what:
        done = shell(f"pip install '{one}'")
        skip_without_index(done.returncode, done.stderr)
        assert done.returncode == 0, done.stderr


def sentence(shell: Shell) -> str:
    """What every command ends with."""
    command = shell("zeus doctor")
    assert (command.returncode, command.stdout) == (1, "")
    line = command.stderr.strip()
    assert "\n" not in line and line.startswith("zeus: ") and line.endswith(".")
    return line


def mend(shell: Shell, line: str) -> None:
    """Run the commands that it names, as they are."""
    commands = re.findall("`([^`]+)`", line)
    assert commands
    for command in commands:
        assert shell(command).returncode == 0, command
    assert shell(IMPORT).stdout.strip() == zeus.__version__
    install(shell, "msgspec")
    assert "ZeusMonitor" in shell("python -c 'from zeus.monitor.energy import ZeusMonitor; print(ZeusMonitor)'").stdout


@pytest.mark.parametrize("other", OLD)
def test_installed_over_another_one_it_says_how_to_mend_it_also_after_that_one_was_removed(
    built: Path, shell: Shell, other: str
) -> None:
    (wheel,) = built.glob("*.whl")
    install(shell, other, wheel)
    line = sentence(shell)
    name, _, version = other.partition("==")
    assert f"zeus-energy and {name} {version} have overwritten each other's files" in line
    assert shell(f"pip uninstall -y {name}").returncode == 0
    line = sentence(shell)
    assert "files of zeus-energy are missing" in line and f"'{wheel}'" in line
    mend(shell, line)


def test_another_one_installed_over_it_is_said_too(built: Path, shell: Shell) -> None:
    (wheel,) = built.glob("*.whl")
    install(shell, wheel, OLD[0])
    line = sentence(shell)
    assert "pip uninstall -y zeus zeus-energy" in line
    mend(shell, line)


def test_alone_it_says_nothing_and_python_loads_nothing_of_it(built: Path, shell: Shell) -> None:
    (wheel,) = built.glob("*.whl")
    install(shell, wheel)
    assert shell(IMPORT).stdout.strip() == zeus.__version__
    loaded = shell("python -c 'import sys; print(*sorted(sys.modules))'").stdout.split()
    assert not {"zeus", "zeus_energy"} & set(loaded)


def test_a_checkout_hidden_by_another_one_is_said_by_the_command(shell: Shell) -> None:
    """As after `pip install -e`: the other one comes first on the path, and nothing is mixed."""
    install(shell, OLD[0])
    source = Path(zeus.__file__).parents[1]
    code = f"import sys; sys.path.append({str(source)!r}); import zeus_energy; zeus_energy.main()"
    done = shell(f'python -c "{code}"')
    assert done.returncode == 1
    assert re.fullmatch(r"zeus: zeus 0\.16\.0 at \S+ hides the package of zeus-energy: .*`\.\n", done.stderr)
