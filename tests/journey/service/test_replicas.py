"""Two replicas with two workers each on one Postgres: one is killed, the database restarts, and no report is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from support.paths import ROOT, SOURCES
from support.postgres import PostgresServer

pytestmark = pytest.mark.peers  # nine processes that import all of the service

BENCHMARK = ROOT / "benchmarks" / "service.py"


def test_no_report_is_lost_or_counted_twice_and_no_client_sees_worse_than_503(postgres: PostgresServer) -> None:
    paths = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(BENCHMARK), "--pairs", "200", "--clients", "20", "--jobs", "6", "--json"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    wanted = {"pairs": 200, "lost": 0, "counted_twice": 0, "changed": 0, "worse_than_503": 0, "tracebacks": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert found["hung_up"] + found["statuses"].get("503", 0) > 0, "nothing went wrong on the way, so nothing was shown"
