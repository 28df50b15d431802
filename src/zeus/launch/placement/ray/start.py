"""Becomes `zeus run` on a node of Ray. A program: `python -m zeus.launch.placement.ray.start VARIABLES FOLDER COMMAND`.

The variables of Zeus come from a file, because Ray shows the environment and the entrypoint of a job to everybody.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from zeus.errors import FAILED, LaunchError
from zeus.launch.placement.ray.variables_file import take
from zeus.launch.process.guard import failed_start
from zeus.settings import inherited


def main(variables: Path, folder: str, command: list[str]) -> NoReturn:
    """Take the variables, and become the command in its folder."""
    try:
        environ = {**inherited(), **take(variables)}
    except LaunchError as failed:
        _end(str(failed), FAILED)
    try:
        os.chdir(folder)
    except OSError as failed:
        why = f"this node does not see the folder {folder} ({failed.strerror}). All nodes must see it at the same path."
        _end(why, FAILED)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # Ray blocks SIGINT in its workers, and masks are inherited
    _say(f"running on {socket.gethostname()}, GPUs {environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.")
    try:
        os.execvpe(command[0], command, environ)
    except OSError as failed:
        _end(f"{command[0]} cannot be run on this node: {failed.strerror}.", failed_start(failed))


def _say(text: str) -> None:
    sys.stderr.write(f"zeus: {text}\n")
    sys.stderr.flush()


def _end(why: str, status: int) -> NoReturn:
    _say(why)
    sys.exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
