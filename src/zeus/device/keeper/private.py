"""Starts a private keeper: a small process that outlives this one just long enough to restore the limits.

It is not a child of this process, so killing a process tree does not kill it, and it leaves no zombie. It has its own
session, so Ctrl-C does not reach it. The only thing it inherits is one end of a socket.
"""

from __future__ import annotations

import contextlib
import os
import site
import subprocess
import sys
import time
from pathlib import Path

from zeus import settings
from zeus.device import ranks
from zeus.device.keeper.protocol import Channel, pair
from zeus.device.virtual.machine import passed_on
from zeus.errors import KeeperLost, ZeusError

START_SECONDS = 60.0  # for the interpreter to start on a very busy machine


def start_private() -> Channel:
    """Start a keeper for this process alone and connect to it."""
    ours, theirs = pair()
    channel = Channel(ours)
    command = [sys.executable, "-P", "-m", "zeus.device.keeper", "--fd", str(theirs.fileno())]
    try:
        with theirs:
            starter = subprocess.Popen(  # it forks the keeper and exits
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        with starter:
            try:
                starter.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                starter.kill()
                raise KeeperLost(f"a private keeper did not start within {START_SECONDS:g} s.") from None
        channel.greet(START_SECONDS)
    except OSError as e:
        channel.close()
        raise KeeperLost(f"a private keeper could not be started with {sys.executable}: {e}") from e
    except BaseException:
        channel.close()
        raise
    return channel


def reap(pid: int) -> None:
    """Collect a private keeper that has ended. Needed only as a container's first process, which inherits orphans."""
    deadline = time.monotonic() + settings.time_limits().keeper_answer  # a suspended keeper does not end
    with contextlib.suppress(ChildProcessError):
        while os.getpid() == 1 and os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)


def recover() -> None:
    """Start a keeper without a client. It restores what a killed keeper left behind, and then ends."""
    with contextlib.suppress(ZeusError):
        channel = start_private()
        channel.close()
        reap(channel.keeper_pid)


def _environment() -> dict[str, str]:
    """This process's environment, with absolute paths (the keeper runs in /) and without what only we need."""
    masks = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    own = (*masks, *ranks.PLACES, "NOTIFY_SOCKET", "PYTHONINSPECT")
    variables = settings.inherited(own) | passed_on()
    for name in ("ZEUS_KEEPER_STATE", "ZEUS_CONFIG"):
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    folders = [str(Path(p).absolute()) for p in variables.get("PYTHONPATH", "").split(os.pathsep) if p]
    package = str(Path(__file__).absolute().parents[3])
    if package not in (*folders, *site.getsitepackages(), site.getusersitepackages()):
        folders.insert(0, package)  # the keeper would not find Zeus otherwise
    if folders:
        variables["PYTHONPATH"] = os.pathsep.join(folders)
    return variables
