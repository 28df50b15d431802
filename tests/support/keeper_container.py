"""Containers for tests: a process with its own mount and pid namespaces and its own /run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from support.keeper_place import Place

ENTER = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _obstacle() -> str:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return "only root can make a container, and only with unshare"
    tried = subprocess.run([*ENTER, "mount", "-t", "tmpfs", "tmpfs", "/run"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"no container can be made here: {tried.stderr.decode().strip()}"


_why_not = _obstacle()
needs_unshare = pytest.mark.skipif(bool(_why_not), reason=_why_not or "a container can be made here")


def contained(place: Place, *arguments: str, shared: bool, **env: str) -> subprocess.Popen[str]:
    """Run Python with these arguments in a container; with `shared`, its /run/zeus is the place's folder `run`.

    Killing what is returned kills everything in the container.
    """
    mounts = "mount -t tmpfs tmpfs /run && mkdir /run/zeus"
    if shared:
        folder = place.folder / "run"
        folder.mkdir(exist_ok=True)
        mounts += f" && mount --bind {folder} /run/zeus"
    apart = {name: value for name, value in place.env.items() if name not in ("ZEUS_KEEPER", "ZEUS_KEEPER_STATE")}
    process = subprocess.Popen(
        [*ENTER, "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, *arguments],
        env={**apart, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    place.running.append(process)
    return process
