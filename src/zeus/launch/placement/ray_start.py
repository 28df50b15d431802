"""Becomes `zeus run` on a node of Ray. A program: `python -m zeus.launch.placement.ray_start VARIABLES FOLDER COMMAND`.

The variables of Zeus may hold secrets, and Ray shows the entrypoint and the environment of a job to everybody who can
reach it. So they are in a file that only this user can read, and that the job removes as soon as it has read it. If a
job ends before it has started, whoever next sees that removes the file.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from zeus.errors import FAILED, InputError, LaunchError
from zeus.files import write_whole
from zeus.launch.process.guard import failed_start
from zeus.settings import data_folder, inherited


def variables_file(job_id: str) -> Path:
    """Where a job finds its variables."""
    return data_folder() / "ray" / f"{job_id}.json"


def leave(file: Path, variables: Mapping[str, str]) -> None:
    """Write them.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(file, json.dumps(dict(variables)))
    except OSError as failed:
        raise InputError(
            f"{file} cannot be written: {failed.strerror}. Set XDG_DATA_HOME to another folder, which all nodes of "
            "the Ray cluster must see too."
        ) from failed


def take(file: Path) -> dict[str, str]:
    """Read them, and remove the file.

    Raises:
        LaunchError: The file cannot be read.
    """
    try:
        variables: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
    except OSError as failed:
        raise LaunchError(
            f"{file} cannot be read on this node: {failed.strerror}. It holds the address of the store for this run. "
            "Submit the job as the user whose Ray cluster it is, from a machine that shares this folder with all "
            "nodes. XDG_DATA_HOME sets another folder."
        ) from failed
    return variables


def remove_left(has_ended: Callable[[str], bool]) -> None:
    """Remove the files of all jobs that have ended without having taken theirs.

    Args:
        has_ended: Whether the job of this id has ended. False if that is not known.
    """
    for file in sorted(variables_file("any").parent.glob("*.json")):
        if has_ended(file.stem):
            file.unlink(missing_ok=True)


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
    _print(f"running on {socket.gethostname()}, GPUs {environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.")
    try:
        os.execvpe(command[0], command, environ)
    except OSError as failed:
        _end(f"{command[0]} cannot be run on this node: {failed.strerror}.", failed_start(failed))


def _print(text: str) -> None:
    sys.stderr.write(f"zeus: {text}\n")
    sys.stderr.flush()


def _end(why: str, status: int) -> NoReturn:
    _print(why)
    sys.exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
