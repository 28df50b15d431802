"""Runs one command and ends all of it when its launcher is gone, even by kill -9. A program: `guard.py FD FD COMMAND`.

    zeus run ──socket──▶ outer guard ──▶ inner guard ──▶ command ──▶ whatever it starts
        ◀──────────────────── output ────────────────────────┘

Nothing that the command starts can leave: a process whose parent ends falls to the nearest guard (it is a subreaper),
in whatever group or session it is. The guard stays until all of them are gone. There are two guards, so that the other
one ends everything when one of them is killed, also together with the launcher. If both are killed, the kernel kills
the command itself, and the launcher what is in its session.

The launcher sends signal numbers, a byte each. The end of the socket says that the launcher is gone, which ends the
command. Uses the standard library alone, so that it starts at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

GRACE_SECONDS = 10.0  # between asking a command to end and ending it
OTHERS_SECONDS = 2.0  # for what it left behind, which frees the GPU as it goes
KILLED_SECONDS = 10.0  # after which what was killed and is still there will stay: another user's, or stuck in a driver
LOOK_SECONDS = 0.05  # how often is looked who is still there, while they are being ended
NOT_FOUND, CANNOT_RUN, BY_SIGNAL = 127, 126, 128  # as shells answer
_PARENT_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl(2)


def main(descriptor: int, output: int, command: list[str]) -> int:
    """Run it; its exit status as a shell would say it.

    Args:
        descriptor: The guards' end of the socket.
        output: Where the command's output is read. Here it is read only if the launcher is gone, so that a command that
            saves its work can still speak.
        command: What to run.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _nothing)  # sent to the command's group: the guard stays to say how it ended
    launcher = socket.socket(fileno=descriptor)
    _prctl(_SUBREAPER, 1)
    inner = os.fork()
    if inner:
        os.close(output)
        return _Guard(inner, launcher, None).stay()
    _prctl(_SUBREAPER, 1)  # it is not inherited
    os.setpgid(0, 0)  # the command is in this group, but does not lead it, so that it may begin a session of its own
    try:
        child = subprocess.Popen(command, preexec_fn=_die_with(os.getpid()))  # noqa: PLW1509 there is no thread
    except OSError as failed:
        sys.stderr.write(f"{command[0]}: cannot be run: {failed.strerror}.\n")
        return failed_start(failed)
    child.returncode = 0  # the guard reaps it
    return _Guard(child.pid, launcher, output).stay()


class _Guard:
    """Stays until its child and all that the child left behind are gone.

    Args:
        child: The command, or the inner guard.
        launcher: The socket.
        output: See `main`; None: this is the outer guard, which leaves all to the inner one while that lives.
    """

    def __init__(self, child: int, launcher: socket.socket, output: int | None) -> None:
        self._child, self._launcher, self._output = child, launcher, output
        self._status: int | None = None
        self._end: float | None = None  # when those that are still there are killed; None: the command runs
        self._asked: set[int] = set()  # of the children: who were asked to end
        self._ready = select.poll()
        self._ready.register(launcher, select.POLLRDHUP | (select.POLLIN if output is not None else 0))
        self._ready.register(_child_ended(), select.POLLIN)

    def stay(self) -> int:
        """Until nobody is left; the child's exit status."""
        while self._reap():
            for descriptor, event in self._ready.poll(None if self._end is None else LOOK_SECONDS * 1000):
                if descriptor == self._launcher.fileno():
                    self._heed(event)
                else:
                    os.read(descriptor, 1 << 16)
            if self._end is not None and not self._press_on():
                break
        status = -signal.SIGKILL if self._status is None else self._status  # None: it cannot even be killed
        return _exit_as(status, is_guard=self._output is None)

    def _reap(self) -> bool:
        """Take note of who has ended; whether anybody is left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._asked.discard(ended[0])
                if ended[0] == self._child:
                    self._status = os.waitstatus_to_exitcode(ended[1])
                    self._end_within(OTHERS_SECONDS)
            return True
        return False

    def _end_within(self, seconds: float) -> None:
        self._end = min(self._end or float("inf"), time.monotonic() + seconds)

    # ------------------------------------------------------------------ what the launcher wants

    def _heed(self, event: int) -> None:
        if self._output is None or not (said := self._launcher.recv(1)):
            self._ready.unregister(self._launcher)
            self._launcher_gone()
            if self._output is not None and event & select.POLLHUP:  # not only has it nothing more to say
                self._ready.register(self._output, select.POLLIN)
        elif said[0] == signal.SIGKILL:
            self._end_within(0.0)
        elif said[0] in (signal.SIGSTOP, signal.SIGCONT):
            self._send_all(said[0])
        else:
            self._ask(said[0])

    def _launcher_gone(self) -> None:
        if self._output is None:
            self._end_within(2 * GRACE_SECONDS + KILLED_SECONDS)  # the inner guard sees to it
            return
        self._end_within(GRACE_SECONDS)
        if self._status is None:
            self._asked.add(self._child)
            self._ask(signal.SIGTERM)
            self._send_all(signal.SIGCONT)  # who is stopped cannot heed it

    # ------------------------------------------------------------------ what is done to them

    def _ask(self, number: int) -> None:
        """To the command and its group, also where it has begun a group of its own."""
        os.killpg(0, number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._status is None and os.getpgid(self._child) != os.getpgrp():  # not reaped: no stranger
                os.killpg(os.getpgid(self._child), number)

    def _press_on(self) -> bool:
        """Ask or kill those who are the guard's own by now; false where no more can be done.

        Its own children keep their number until they are reaped here, so no stranger is met. Whoever they leave behind
        is the guard's own next time.
        """
        assert self._end is not None
        late = time.monotonic() - self._end
        for pid in _children().get(os.getpid(), ()):
            if _is_keeper(pid):  # it ends by itself once its limits are back, and never before
                continue
            if late >= 0:
                _send(pid, signal.SIGKILL)
            elif pid not in self._asked and self._status is not None:
                self._asked.add(pid)
                _send(pid, signal.SIGTERM)
                _send(pid, signal.SIGCONT)
        return late < KILLED_SECONDS

    def _send_all(self, number: int) -> None:
        """To all that descend from the guard."""
        children = _children()
        waiting = [*children.get(os.getpid(), ())]
        while waiting:
            pid = waiting.pop()
            waiting += children.get(pid, ())
            if not _is_keeper(pid):
                _send(pid, number)


def shell_status(status: int) -> int:
    """The exit status of a process as a shell says it: 128 + N when signal N ended it.

    >>> shell_status(3), shell_status(-9)
    (3, 137)
    """
    return status if status >= 0 else BY_SIGNAL - status


def failed_start(error: OSError) -> int:
    """The exit status of a shell whose command could not be started.

    >>> failed_start(FileNotFoundError()), failed_start(PermissionError())
    (127, 126)
    """
    return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


def processes() -> Iterator[tuple[int, int, int]]:
    """All that can be seen: each one's number, its parent's and its session's."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, parent, _, session, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split(None, 4)
            yield int(folder.name), int(parent), int(session)


def _children() -> dict[int, list[int]]:
    """Who is whose child."""
    found: dict[int, list[int]] = {}
    for pid, parent, _ in processes():
        found.setdefault(parent, []).append(pid)
    return found


def _is_keeper(pid: int) -> bool:
    """Whether it is the private keeper of a training, which ends with that, once it has put the limits back."""
    with contextlib.suppress(OSError):
        return b"\0zeus.device.keeper\0--fd\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or another user's (sudo)
        os.kill(pid, number)


# ---------------------------------------------------------------------------------------------------- the system


def _child_ended() -> int:
    """A descriptor that can be read whenever a child has ended."""
    here, there = os.pipe()
    os.set_blocking(there, False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.set_wakeup_fd(there, warn_on_full_buffer=False)
    return here


def _nothing(*_: object) -> None:
    """A handler, unlike SIG_IGN, is not inherited."""


def _prctl(option: int, value: int) -> None:
    """Where the kernel refuses, the command and its own group are guarded as ever."""
    _LIBC.prctl(option, value, 0, 0, 0)


def _die_with(guard: int) -> Callable[[], None]:
    def run() -> None:
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # gone before that
            os._exit(BY_SIGNAL + signal.SIGKILL)

    return run


def _exit_as(status: int, is_guard: bool) -> int:
    """An exit status as a shell says it; who outlives a guard that was killed ends as it did, to tell it apart."""
    if status < 0 and is_guard:
        _end_by(-status)
    return shell_status(status)


def _end_by(number: int) -> NoReturn:
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(BY_SIGNAL + number)


_LIBC = ctypes.CDLL(None)

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
