"""The documentation's site: built without torch, every public name in it, nothing fetched from elsewhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytest.importorskip("mkdocstrings", reason="the site needs pip install 'zeus-energy[docs]'")

from support.paths import ROOT
from support.waiting import PATIENCE_SECONDS

BUILD = """
import sys
from mkdocs.__main__ import cli
cli(["build", "--strict", "--quiet", "--site-dir", sys.argv[1]], standalone_mode=False)
assert not {"torch", "transformers", "lightning"} & set(sys.modules), "the API reference is read, not imported"
"""
PUBLIC = [
    "zeus",
    "zeus.callback",
    "zeus.device.find",
    "zeus.device.gpu",
    "zeus.device.keeper",
    "zeus.device.virtual",
    "zeus.errors",
    "zeus.job",
    "zeus.monitor",
    "zeus.optimizer.batch_size",
    "zeus.optimizer.power_limit",
    "zeus.store",
    "zeus.utils.lr_scaler",
]
LOADED_LATE = [
    "zeus.ZeusDataLoader",
    "zeus.optimizer.batch_size.BatchSizeOptimizer",
    "zeus.optimizer.power_limit.HFGlobalPowerLimitOptimizer",
    "zeus.training.huggingface.BatchSizeCallback",
    "zeus.training.huggingface.EnergyCallback",
    "zeus.training.lightning.BatchSizeCallback",
    "zeus.training.lightning.EnergyCallback",
    "zeus.launch.recurrence.recur",
]
MEMBERS = re.compile(r"^::: (zeus[\w.]*)\n(?:    .*\n)*?      members: \[(.*)\]", re.MULTILINE)
FETCHED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\ssrc="([^"]+)"|<link\b[^>]*\shref="([^"]+)\"""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built once."""
    out = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-c", BUILD, str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def public_names(module: str) -> list[str]:
    """`module.name` of each name that the module lists, or defines where it lists none."""
    found = importlib.import_module(module)
    defined = [name for name, value in vars(found).items() if getattr(value, "__module__", None) == module]
    return [f"{module}.{name}" for name in getattr(found, "__all__", defined) if not name.startswith("_")]


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    told = {name for page in site.glob("api/*.html") for name in re.findall(r'id="(zeus[\w.]*)"', page.read_text())}
    wanted = {name for module in PUBLIC for name in public_names(module)}
    assert sorted((wanted | set(LOADED_LATE)) - told) == []


def test_every_name_that_a_page_of_the_reference_asks_for_is_on_it(site: Path) -> None:
    asked = [
        (page, module, names)
        for page in (ROOT / "docs" / "api").glob("*.md")
        for module, names in MEMBERS.findall(page.read_text())
    ]
    assert len(asked) > 3
    for page, module, names in asked:
        built = (site / "api" / f"{page.stem}.html").read_text()
        assert [name for name in names.split(", ") if f'id="{module}.{name}"' not in built] == []


def test_nothing_is_fetched_from_elsewhere_and_all_that_is_fetched_is_there(site: Path) -> None:
    missing = []
    for page in site.rglob("*.html"):
        if page.name == "404.html":  # a server gives it for any address, so its own are absolute
            continue
        for match in FETCHED.finditer(page.read_text()):
            address = urlsplit(match[1] or match[2])
            if address.scheme == "data":  # a picture inside the page: the report
                continue
            if address.scheme or address.netloc or not (page.parent / unquote(address.path)).is_file():
                missing.append((page.name, match[1] or match[2]))
    assert missing == []


def test_security_is_a_page_of_the_site(site: Path) -> None:
    first = (ROOT / "SECURITY.md").read_text().split("## ")[1].splitlines()[0]
    assert first in (site / "security.html").read_text()
