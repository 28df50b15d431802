"""The lowest versions that pyproject.toml allows, in an environment of their own: they serve a recurrence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from support.environments import environment, lowest
from support.launch_place import Place
from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter with the lowest versions of what the core and the service need, and nothing else."""
    return environment(Path(sys.executable), *lowest("service"))


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
