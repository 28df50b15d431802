"""Becomes a command that gets SIGTERM when its parent is gone.

A program: `python -m zeus.launch.process.tied PARENT NAME COMMAND`.

No two commands of one name run at a time on a machine: the second waits until the first has ended, so that a run which
is started again does not overlap with the end of its last start.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
import time
from typing import NoReturn

from zeus.launch.process.guard import failed_start

_PARENT_DEATH_SIGNAL = 1  # prctl(2)
_LOOK_SECONDS = 0.2


def main(parent: int, name: str, command: list[str]) -> NoReturn:
    """Tie this process to its parent, take the name, and become the command."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        sys.exit(128 + signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # the parent may ignore or block them, and both are inherited
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.set_inheritable(_alone(name).detach(), True)
    try:
        os.execvp(command[0], command)
    except OSError as failed:
        sys.stderr.write(f"zeus: {command[0]} cannot be run on this node: {failed.strerror}.\n")
        sys.exit(failed_start(failed))


def _alone(name: str) -> socket.socket:
    """A socket that only one process of this machine can have. The system closes it when that process ends."""
    door, told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM), False
    while True:
        try:
            door.bind(f"\0zeus-{name}")
            return door
        except OSError as taken:
            if taken.errno != errno.EADDRINUSE:
                raise
        if not told:
            told = True
            sys.stderr.write("zeus: an earlier start of this run is still ending on this node. Waiting for it.\n")
            sys.stderr.flush()
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
