"""A program that runs a command, and ends it with all its processes when the launcher is gone.

    guard.py SOCKET OUTPUT GRACE LEFTOVERS KILLED COMMAND...    where the three are seconds (`zeus.settings.types`)

    zeus run ──socket──▶ outer guard ──▶ inner guard ──▶ command ──▶ whatever it starts
        ◀──────────────────── output ────────────────────────┘

No process of the command can escape, whatever its group or session: a guard is a subreaper, so it becomes the parent of
each process whose own parent ends. It stays until all of them are gone. There are two guards: if one is killed, even
together with the launcher, the other ends everything. If both are killed, the kernel kills the command, and the
launcher kills the processes of its session.

The launcher sends signal numbers, one byte each. When the socket closes, the launcher is gone (perhaps by kill -9), and
the guard ends the command. It uses only the standard library, so that it starts fast.
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
from typing import NamedTuple, NoReturn

LOOK_SECONDS = 0.05  # how often to look for remaining processes, while they are being ended
NOT_FOUND, CANNOT_RUN, BY_SIGNAL = 127, 126, 128  # exit codes, as in a shell
_PARENT_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl(2)


class Times(NamedTuple):
    """Time limits in seconds, as in `zeus.settings.types`, which this program cannot import."""

    grace: float
    leftovers: float
    killed: float


def main(descriptor: int, output: int, times: Times, command: list[str]) -> int:
    """Run the command and return its exit status as a shell would.

    Args:
        descriptor: The guards' end of the socket.
        output: Read end of the command's output. The guard reads it only if the launcher is gone, so that a command
            that saves its work does not block on a full pipe.
        times: How long processes have to end.
        command: The command.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _nothing)  # sent to the command's group: the guard must stay to return its exit status
    launcher = socket.socket(fileno=descriptor)
    _prctl(_SUBREAPER, 1)
    inner = os.fork()
    if inner:
        os.close(output)
        return _Guard(inner, launcher, None, times).stay()
    _prctl(_SUBREAPER, 1)  # not inherited
    os.setpgid(0, 0)  # the command is in this group but does not lead it, so it can start a session of its own
    try:
        child = subprocess.Popen(command, preexec_fn=_die_with(os.getpid()))  # noqa: PLW1509 there is no thread
    except OSError as failed:
        sys.stderr.write(f"{command[0]} cannot be run: {failed.strerror}.\n")
        return failed_start(failed)
    child.returncode = 0  # the guard reaps it
    return _Guard(child.pid, launcher, output, times).stay()


class _Guard:
    """Stays until its child and all processes that the child left behind are gone.

    Args:
        child: The command, or the inner guard.
        launcher: The socket.
        output: See `main`. None: this is the outer guard, which does nothing while the inner one lives.
        times: See `main`.
    """

    def __init__(self, child: int, launcher: socket.socket, output: int | None, times: Times) -> None:
        self._child, self._launcher, self._output, self._times = child, launcher, output, times
        self._status: int | None = None
        self._end: float | None = None  # when the remaining processes are killed; None: the command is running
        self._asked: set[int] = set()  # children that were asked to end
        self._ready = select.poll()
        self._ready.register(launcher, select.POLLRDHUP | (select.POLLIN if output is not None else 0))
        self._ready.register(_child_ended(), select.POLLIN)

    def stay(self) -> int:
        """Wait until no process is left. Returns the child's exit status."""
        while self._reap():
            for descriptor, event in self._ready.poll(None if self._end is None else LOOK_SECONDS * 1000):
                if descriptor == self._launcher.fileno():
                    self._on_order(event)
                else:
                    os.read(descriptor, 1 << 16)
            if self._end is not None and not self._kill_rest():
                break
        status = -signal.SIGKILL if self._status is None else self._status  # None: it cannot even be killed
        return _exit_as(status, is_guard=self._output is None)

    def _reap(self) -> bool:
        """Reap children that have ended. Returns whether any is left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                self._asked.discard(ended[0])
                if ended[0] == self._child:
                    self._status = os.waitstatus_to_exitcode(ended[1])
                    self._end_within(self._times.leftovers)
            return True
        return False

    def _end_within(self, seconds: float) -> None:
        self._end = min(self._end or float("inf"), time.monotonic() + seconds)

    # ------------------------------------------------------------------ orders of the launcher

    def _on_order(self, event: int) -> None:
        if self._output is None or not (order := self._launcher.recv(1)):
            self._ready.unregister(self._launcher)
            self._launcher_gone()
            if self._output is not None and event & select.POLLHUP:  # fully closed, not only for writing
                self._ready.register(self._output, select.POLLIN)
        elif order[0] == signal.SIGKILL:
            self._end_within(0.0)
        elif order[0] in (signal.SIGSTOP, signal.SIGCONT):
            self._send_all(order[0])
        else:
            self._ask(order[0])

    def _launcher_gone(self) -> None:
        if self._output is None:
            self._end_within(2 * self._times.grace + self._times.killed)  # leaves time for the inner guard
            return
        self._end_within(self._times.grace)
        if self._status is None:
            self._asked.add(self._child)
            self._ask(signal.SIGTERM)
            self._send_all(signal.SIGCONT)  # a stopped process cannot react to SIGTERM

    # ------------------------------------------------------------------ signals to processes

    def _ask(self, number: int) -> None:
        """Send a signal to the command and its group, even if it has started a group of its own."""
        os.killpg(0, number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if (
                self._status is None and os.getpgid(self._child) != os.getpgrp()
            ):  # not reaped, so the pid is still its own
                os.killpg(os.getpgid(self._child), number)

    def _kill_rest(self) -> bool:
        """Ask or kill the guard's children. Returns false if no more can be done.

        A child keeps its pid until the guard reaps it, so no other process is hit. Processes that a child leaves behind
        become the guard's children, and are ended next time.
        """
        assert self._end is not None
        late = time.monotonic() - self._end
        for pid in _children().get(os.getpid(), ()):
            if _is_keeper(pid):  # it must restore the power limits, and then ends by itself
                continue
            if late >= 0:
                _send(pid, signal.SIGKILL)
            elif pid not in self._asked and self._status is not None:
                self._asked.add(pid)
                _send(pid, signal.SIGTERM)
                _send(pid, signal.SIGCONT)
        return late < self._times.killed

    def _send_all(self, number: int) -> None:
        """Send a signal to all descendants of the guard."""
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
    """All visible processes: each one's pid, its parent's pid and its session."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            _, parent, _, session, *_ = (folder / "stat").read_bytes().rpartition(b")")[2].split(None, 4)
            yield int(folder.name), int(parent), int(session)


def _children() -> dict[int, list[int]]:
    """The children of each process, by pid."""
    found: dict[int, list[int]] = {}
    for pid, parent, _ in processes():
        found.setdefault(parent, []).append(pid)
    return found


def _is_keeper(pid: int) -> bool:
    """Whether this is the private keeper of a training, which ends after it has restored the power limits."""
    with contextlib.suppress(OSError):
        return b"\0zeus.device.keeper\0--fd\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is another user's (sudo)
        os.kill(pid, number)


# ---------------------------------------------------------------------------------------------------- the system


def _child_ended() -> int:
    """A file descriptor that becomes readable whenever a child has ended."""
    here, there = os.pipe()
    os.set_blocking(there, False)
    signal.signal(signal.SIGCHLD, _nothing)
    signal.set_wakeup_fd(there, warn_on_full_buffer=False)
    return here


def _nothing(*_: object) -> None:
    """Ignores a signal. Unlike SIG_IGN, a handler is not inherited."""


def _prctl(option: int, value: int) -> None:
    """Call prctl. Errors are ignored: the command and its own group are guarded even so."""
    _LIBC.prctl(option, value, 0, 0, 0)


def _die_with(guard: int) -> Callable[[], None]:
    def run() -> None:
        _prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # the guard ended before the call
            os._exit(BY_SIGNAL + signal.SIGKILL)

    return run


def _exit_as(status: int, is_guard: bool) -> int:
    """An exit status as in a shell. If the inner guard was killed, the outer one ends by the same signal."""
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
    seconds = Times(*map(float, sys.argv[3:6]))
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), seconds, sys.argv[6:]))
