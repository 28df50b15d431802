"""Starting a private keeper: a small process that outlives this one by as long as it takes to put limits back.

It is not our child (a tree of processes that is killed does not take it along, and it leaves no zombie), has its own
session (Ctrl-C does not reach it), and holds nothing of ours but one end of a socket.
"""

from __future__ import annotations

import contextlib
import os
import site
import subprocess
import sys
import time
from pathlib import Path

from zeus import env
from zeus.device import ranks
from zeus.device.keeper.channel import ANSWER_SECONDS, Channel, pair
from zeus.errors import KeeperLost, ZeusError

START_SECONDS = 60.0  # for the interpreter to come up on a machine that is very busy


def start_private() -> Channel:
    """Start a keeper for this process alone and greet it."""
    ours, theirs = pair()
    channel = Channel(ours)
    command = [sys.executable, "-P", "-m", "zeus.device.keeper", "--fd", str(theirs.fileno())]
    try:
        with theirs:
            starter = subprocess.Popen(  # it forks the keeper and is gone
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
    """Collect a private keeper that has ended, where orphans are ours: as the first process of a container."""
    deadline = time.monotonic() + ANSWER_SECONDS  # one that was stopped does not end
    with contextlib.suppress(ChildProcessError):
        while os.getpid() == 1 and os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < deadline:
            time.sleep(0.01)


def recover() -> None:
    """Start a keeper for no one: it puts back what a killed one left, sees that nobody is there, and ends."""
    with contextlib.suppress(ZeusError):
        channel = start_private()
        channel.close()
        reap(channel.keeper_pid)


def _environment() -> dict[str, str]:
    """Ours, with paths made absolute (the keeper lives in /) and without what is about this process only."""
    masks = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    own = (*masks, *ranks.PLACES, "NOTIFY_SOCKET", "PYTHONINSPECT")
    variables = env.inherited(own)
    for name in ("ZEUS_VIRTUAL_STATE", "ZEUS_KEEPER_STATE"):
        if variables.get(name):
            variables[name] = str(Path(variables[name]).absolute())
    places = [str(Path(p).absolute()) for p in variables.get("PYTHONPATH", "").split(os.pathsep) if p]
    package = str(Path(__file__).absolute().parents[3])
    if package not in (*places, *site.getsitepackages(), site.getusersitepackages()):
        places.insert(0, package)  # we were found by other means than the keeper will have
    if places:
        variables["PYTHONPATH"] = os.pathsep.join(places)
    return variables
