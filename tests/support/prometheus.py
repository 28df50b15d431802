"""A real Prometheus on loopback that scrapes what a test gives it, for as long as a `with` block lasts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.served import hold_port
from support.waiting import PATIENCE_SECONDS, eventually

PROMETHEUS = os.environ.get("ZEUS_TEST_PROMETHEUS") or shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="Prometheus is missing: apt-get install prometheus")


class Prometheus:
    """One that runs."""

    def __init__(self, address: str) -> None:
        self.address = address

    def query(self, text: str) -> list[dict[str, Any]]:
        """What a query returns now. An error of the query fails the test."""
        answer = httpx.get(f"{self.address}/api/v1/query", params={"query": text}, timeout=PATIENCE_SECONDS)
        told = answer.json()
        assert told["status"] == "success", (text, told)
        found: list[dict[str, Any]] = told["data"]["result"]
        return found


@contextmanager
def prometheus(folder: Path, scrapes: str) -> Iterator[Prometheus]:
    """A Prometheus with these scrape_configs (YAML), which it scrapes every second."""
    assert PROMETHEUS is not None
    indented = "".join(f"  {line}\n" for line in scrapes.strip().splitlines())
    config = f"global: {{scrape_interval: 1s}}\nscrape_configs:\n{indented}"
    (folder / "prometheus.yml").write_text(config)
    with hold_port() as door:
        port = door.getsockname()[1]
    command = [
        PROMETHEUS,
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        address = f"http://127.0.0.1:{port}"
        try:
            eventually(lambda: _is_ready(address) or server.poll() is not None)
            assert server.poll() is None, (folder / "prometheus.log").read_text()
            yield Prometheus(address)
        finally:
            server.terminate()
            server.wait(PATIENCE_SECONDS)


def _is_ready(address: str) -> bool:
    try:
        return httpx.get(f"{address}/-/ready", timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False
