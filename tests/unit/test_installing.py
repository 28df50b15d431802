"""Every `pip install` that Zeus or its pages name is one that works."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import zeus_energy
from support.paths import ROOT, SOURCES
from zeus_energy import install_command

EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
ALONE = {"nvidia-ml-py"}  # packages of the core that a message names by themselves, to install or to upgrade


def says(monkeypatch: pytest.MonkeyPatch, direct_url: object) -> None:
    class Distribution:
        @staticmethod
        def read_text(name: str) -> str | None:
            assert name == "direct_url.json"
            return None if direct_url is None else json.dumps(direct_url)

    monkeypatch.setattr(metadata, "distribution", lambda name: Distribution())


def test_an_installation_from_a_folder_or_a_file_is_installed_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "a b"
    place.mkdir()
    url = place.as_uri()
    says(monkeypatch, {"url": url, "dir_info": {"editable": True}})
    assert install_command("torch") == f"pip install -e '{place}[torch]'"
    says(monkeypatch, {"url": url, "dir_info": {}})
    assert (install_command(), install_command("amd")) == (f"pip install '{place}'", f"pip install '{place}[amd]'")
    place.rmdir()
    assert install_command("torch") == "pip install 'zeus-energy[torch]'"  # it is not there any more


def test_one_from_an_index_is_installed_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in (None, {"url": "https://example.org/zeus.git", "vcs_info": {}}):
        says(monkeypatch, said)
        assert (install_command(), install_command("torch")) == (
            "pip install zeus-energy",
            "pip install 'zeus-energy[torch]'",
        )


def test_a_checkout_that_was_never_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("torch") == f"pip install '{ROOT}[torch]'"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_install_from_a_checkout_with_extras_that_exist(page: Path) -> None:
    text = re.sub(r"once Zeus is published, write.*?\]'`", "", page.read_text(), flags=re.DOTALL)
    for what in re.findall(r"pip install ([^\n`#]+)", text):
        found = re.fullmatch(r"'?\.(?:\[(\w+)\])?'?", what.strip())
        assert found is not None, what
        assert found[1] is None or found[1] in EXTRAS


def test_messages_ask_one_function_with_extras_that_exist() -> None:
    for file in sorted((SOURCES / "zeus").rglob("*.py")):
        text = file.read_text()
        asked = re.findall(r"install_command\(['\"](\w+)|(?:optional|require)\(f?\"[^\"]+\", \"(\w+)", text)
        assert {one or other for one, other in asked} <= EXTRAS, file
        written = re.findall(r"pip install (?:-U )?([^\s`.]+)", text)
        assert set(written) <= {*ALONE, "{name}"}, file


def test_this_checkout_is_not_damaged_and_a_damaged_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert zeus_energy.damage() is None
    monkeypatch.setattr(zeus_energy, "_PACKAGE", str(tmp_path))
    missing = zeus_energy.damage()
    assert missing is not None and "files of zeus-energy are missing" in missing
    (tmp_path / "__init__.py").touch()
    assert zeus_energy.damage() is None
    (tmp_path / "exception.py").touch()
    mixed = zeus_energy.damage()
    assert mixed is not None and "zeus-energy and another distribution have overwritten" in mixed
    assert "pip uninstall -y zeus zeus-ml zeus-energy" in mixed


def test_it_loads_nothing_but_os_and_sys() -> None:
    code = "import sys; before = set(sys.modules); import zeus_energy; print(*sorted(set(sys.modules) - before))"
    env = {"PYTHONPATH": str(SOURCES)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "zeus_energy"}
