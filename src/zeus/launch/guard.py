"""Runs one command and ends it when the launcher is gone, even by kill -9. A program of its own: `guard.py FD COMMAND`.

    zeus run ──pipe──▶ guard ──▶ command and whatever it starts (one process group)

The launcher holds the other end of the pipe FD; when that closes while the command runs, nobody is left to watch or
to pay for it. Uses the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

GRACE_SECONDS = 10.0  # between asking a command to end and ending it
NOT_FOUND, CANNOT_RUN, BY_SIGNAL = 127, 126, 128  # as shells answer


def main(descriptor: int, command: list[str]) -> int:
    """Run it; its exit status as a shell would say it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # sent to the whole group: the guard stays to say how it ended
    try:
        child = subprocess.Popen(command)
    except OSError as failed:
        sys.stderr.write(f"{command[0]}: cannot be run: {failed.strerror}.\n")
        return NOT_FOUND if isinstance(failed, FileNotFoundError) else CANNOT_RUN
    threading.Thread(target=_watch, args=(descriptor,), daemon=True).start()
    status = child.wait()
    os.killpg(0, signal.SIGTERM)  # what it left behind would go on using the GPU
    return status if status >= 0 else BY_SIGNAL - status


def _watch(descriptor: int) -> None:
    os.read(descriptor, 1)  # nothing is ever written: it returns when the launcher is gone
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
