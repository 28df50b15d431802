"""What runs on pushes and every night, so far as that can be seen without running it."""

from __future__ import annotations

import re

import pytest

from support.paths import ROOT

yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install pyyaml")
WORKFLOW = ROOT / ".github" / "workflows" / "tests.yml"


def test_the_workflow_makes_what_the_makefile_has() -> None:
    told = yaml.safe_load(WORKFLOW.read_text())
    (job,) = told["jobs"].values()
    assert any(step.get("run") == 'make "$TARGET"' for step in job["steps"])
    wanted = set(re.findall(r"'(\w+)'", job["env"]["TARGET"])) - {"schedule"}
    assert wanted == {"test", "everything"}
    assert wanted <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"push", "pull_request", "schedule"} == set(told[True])  # YAML takes `on` for a truth
