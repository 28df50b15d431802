"""The lowest versions that pyproject.toml allows, in an environment of their own: they serve a recurrence.

The environment is kept in the folder for temporary files, as long as neither the versions nor Python change.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

import httpx
import pytest

from support.launch_place import Place
from support.paths import ROOT
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually

PROJECT = ROOT / "pyproject.toml"
NEW_NUMPY = (3, 13)  # from this Python on, the lowest numpy has to be built


def lowest() -> list[str]:
    """What the core and the service need, each at the lowest version that is allowed."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    needs = [*project["dependencies"], *extras["postgres"], *extras["service"]]
    return [need.replace(">=", "==") for need in needs if not need.startswith("zeus-energy")]


@pytest.fixture(scope="module")
def python() -> Path:
    """Of an environment with those."""
    if sys.version_info >= NEW_NUMPY:
        pytest.skip("the lowest numpy has no wheel for this Python")
    name = hashlib.sha256(json.dumps([sys.version, *lowest()]).encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"zeus-lowest-{os.getuid()}-{name}"
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            _install(folder / "bin" / "python")
            (folder / "made").touch()
    return folder / "bin" / "python"


def _install(python: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *lowest()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "from versions: none" in done.stderr or "connection" in done.stderr.lower():
        pytest.skip(f"no package index can be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def test_each_dependency_says_its_lowest_version() -> None:
    assert all(re.fullmatch(r"[\w\[\]-]+==[\d.]+", one) for one in lowest()), lowest()


def test_the_lowest_versions_serve_a_recurrence(python: Path, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script()
    place.job()
    place.env["PATH"] = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    with hold_port() as held, (tmp_path / "log").open("w") as log:
        port = held.getsockname()[1]
        address = f"http://127.0.0.1:{port}"
        served = subprocess.Popen(
            [python, "-m", "zeus.cli", "serve", "--port", str(port), "--workers", "2", "--proxy", "127.0.0.1"],
            env=place.env, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            said = (tmp_path / "log").read_text
            eventually(lambda: _answers(address) or served.poll() is not None, said)
            assert served.poll() is None, said()
            done = subprocess.run(
                [python, "-m", "zeus.cli", "run", "job.toml", "--json"],
                env={**place.env, "ZEUS_STORE": address},
                cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr + said()
            assert json.loads(done.stdout)["recurrences"][0]["converged"]
            _look(address)
        finally:
            served.terminate()
            served.wait(PATIENCE_SECONDS)
    assert "Traceback" not in said(), said()


def _look(address: str) -> None:
    """At what people and programs look at, and one route of each kind."""
    with httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
        for path in ("/", "/static/app.js", "/static/plotly.min.js", "/openapi.json", "/metrics", "/readyz"):
            assert client.get(path).status_code == 200, path
        assert client.get("/api/v1/jobs").json()["jobs"][0]["recurrences"] == 1
        assert client.post("/api/v1/jobs", json={"spec": 1}).status_code == 422
        assert client.post("/api/v1/jobs", content=b"x" * 2_000_000).status_code == 413
        assert client.delete("/api/v1/jobs/toy").status_code == 204


def _answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/readyz", timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False
