"""A place for tests with real Ray: a network of its own, where Ray can listen on loopback only, and its own folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.paths import ROOT, SOURCES

ALONE = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


@contextmanager
def ray_folder() -> Iterator[Path]:
    """A new folder with a short path, as the paths of Ray's sockets must be short. Skips where there is no network."""
    if subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs a network of its own: root, and the commands unshare and ip")
    made = Path(tempfile.mkdtemp(prefix="zeus-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


def ray_variables(here: Path) -> Mapping[str, str]:
    """The environment of a program that starts Ray, with folders of its own below `here`."""
    (here / "ray").mkdir(parents=True, exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ZEUS_", "RAY_"))}
    return {
        **kept,
        "HOME": str(here),  # for Ray's results
        "PYTHONPATH": os.pathsep.join([str(SOURCES), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        "RAY_AUTH_MODE": "disabled",
        "RAY_TMPDIR": str(here / "ray"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "XDG_DATA_HOME": str(here / "data"),
        "ZEUS_KEEPER_STATE": str(here / "keeper"),
        "ZEUS_VIRTUAL_STATE": str(here / "cards"),
    }


def processes_of(here: Path) -> list[tuple[int, str]]:
    """The processes that were started with the folders below `here`: their pids and what they call themselves."""
    mark, found = f"RAY_TMPDIR={here / 'ray'}".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:  # it has just ended
            continue
    return found
