"""Virtual environments with packages from an index, one for each interpreter and list of packages.

They are kept in the folder for temporary files, as long as neither the packages nor Python change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from support.paths import ROOT

VERSIONS = ("3.11", "3.12", "3.13")  # that pyproject.toml names
INSTALL = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:")


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def requirements(*extras: str) -> list[Requirement]:
    """What the core and these extras need, with the extras that they name in turn."""
    stated = project()
    found = [Requirement(line) for line in stated["dependencies"]]
    waiting = list(extras)
    while waiting:
        for need in map(Requirement, stated["optional-dependencies"][waiting.pop(0)]):
            if need.name == stated["name"]:
                waiting += need.extras
            else:
                found.append(need)
    return found


def lowest(*extras: str, version: str = "") -> list[str]:
    """The same, each at the lowest version that is allowed on this version of Python (default: the running one)."""
    place = {"python_version": version or f"{sys.version_info.major}.{sys.version_info.minor}"}
    floors = dict[str, Version]()
    for need in requirements(*extras):
        if need.marker is None or need.marker.evaluate(place):
            (bound,) = need.specifier
            assert bound.operator == ">=", f"{need}: say the lowest version, and no other"
            name = need.name + (f"[{','.join(sorted(need.extras))}]" if need.extras else "")
            floors[name] = max(Version(bound.version), floors.get(name, Version("0")))
    return [f"{name}=={floor}" for name, floor in floors.items()]


def interpreter(version: str) -> Path:
    """A Python of this version that is installed here; the test is skipped where there is none."""
    minor = tuple(int(part) for part in version.split("."))
    if sys.version_info[:2] == minor:
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    asked = [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/python{version}"))]
    says = "import sys; print(*sys.version_info[:2], sep='.')"
    for python in asked:  # one on the path may be a stub that only says how it could be installed
        done = subprocess.run([python, "-I", "-c", says], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return python
    pytest.skip(f"no python{version} is installed here, neither on the path nor by pyenv")


def environment(python: Path, *packages: str) -> Path:
    """The interpreter of an environment with these packages and no others."""
    told = subprocess.run([python, "-VV"], capture_output=True, text=True, check=True).stdout
    name = hashlib.sha256(json.dumps([str(python), told, *packages]).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"zeus-environment-{os.getuid()}-{name}"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            install(empty(python, folder), *packages)
            (folder / "made").touch()
    return folder / "bin" / "python"


def empty(python: Path, folder: Path) -> Path:
    """The interpreter of a new environment in this folder, with nothing but pip."""
    subprocess.run([python, "-m", "venv", folder], capture_output=True, check=True)
    return folder / "bin" / "python"


def install(python: Path, *packages: str | Path) -> None:
    """Install them; the test is skipped where no index can be reached."""
    done = subprocess.run([python, *INSTALL, *packages], capture_output=True, text=True, check=False)
    skip_without_index(done.returncode, done.stderr)
    assert done.returncode == 0, done.stderr


def skip_without_index(status: int, said: str) -> None:
    """Skip where pip failed with these words because there is no network."""
    if status != 0 and ("from versions: none" in said or "connection" in said.lower()):
        pytest.skip(f"no package index can be reached: {said.strip().splitlines()[-1]}")
