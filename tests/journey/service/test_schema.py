"""schemathesis over the whole OpenAPI: whatever is sent, the service does not fail, and answers what it documents."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.waiting import PATIENCE_SECONDS

REQUESTS = Path(__file__).with_name("openapi_requests.py")
ROUTES = 30  # at least


def test_whatever_is_sent_is_answered_as_documented() -> None:
    """In a process of its own: to make the requests takes seconds, which every worker would spend to collect them."""
    command = [sys.executable, "-m", "pytest", "-p", "schemathesis.pytest.plugin", str(REQUESTS)]
    done = subprocess.run(
        [*command, "-rA"],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr
    assert done.stdout.count("PASSED") >= ROUTES, done.stdout
