"""Starts the command of one trial under guards, logs its output, and stops and ends it with all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from zeus import settings
from zeus.errors import LaunchError
from zeus.launch.process import guard
from zeus.launch.process.output import LogFile, Output
from zeus.settings.types import TimeLimits


def gone_seconds(limits: TimeLimits) -> float:
    """By then the guards have ended all that they can."""
    return limits.grace + 2 * limits.killed


class Child:
    """A running command. Leaving its `with` block ends it and all processes that it has started.

    While it runs, Ctrl-Z stops the command before this process. It continues when this process does.

    Args:
        command: Run without a shell, in the current folder.
        environ: Its whole environment.
        log: File for its output.
        receive: Called on another thread with each chunk of its output, and with an empty one at the end.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        log: Path,
        receive: Callable[[bytes], None] = lambda chunk: None,
    ) -> None:
        self._limits = limits = settings.time_limits()
        seconds = guard.Times(limits.grace, limits.leftovers, limits.killed)
        self._guards, there = socket.socketpair()
        output, written = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__),
                    *map(str, (there.fileno(), output, *seconds)),
                    *command,
                ],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=subprocess.STDOUT,
                pass_fds=(there.fileno(), output),
                start_new_session=True,  # Ctrl-C goes to the launcher, which passes it on
            )
        except OSError as failed:
            os.close(output)
            self._guards.close()
            raise LaunchError(f"{command[0]} cannot be started: {failed}.") from failed
        finally:
            there.close()
            os.close(written)
        self.log = log
        self._kept = LogFile(log)
        self._output = Output(output, self._kept, receive)

    def wait(self, seconds: float) -> int | None:
        """Its exit status as in a shell, or None while it or a process that it started is running."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return guard.shell_status(status)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command and its group. SIGSTOP, SIGCONT and SIGKILL go to all that it has started."""
        with contextlib.suppress(OSError):  # it has ended
            self._guards.send(bytes([number]))

    def end(self, *signals: signal.Signals, grace: float | None = None) -> None:
        """Send each signal in turn until the command ends, at last SIGKILL. Returns when it has ended."""
        try:
            for number in signals:
                self.send(number)
                if self.wait(self._limits.grace if grace is None else grace) is not None:
                    return
        finally:  # also if the user interrupts the wait
            self.send(signal.SIGKILL)
            self._await_exit()

    def _await_exit(self) -> None:
        """Wait for the guards to end. The last of them stays until all processes of the command are gone."""
        with contextlib.suppress(OSError):
            self._guards.shutdown(socket.SHUT_WR)
            self._guards.settimeout(gone_seconds(self._limits))
            self._guards.recv(1)
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.returncode < 0:  # both guards may have been killed
            for pid in [pid for pid, _, session in guard.processes() if session == self._process.pid]:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def close_output(self) -> None:
        """Read what is left of the output. Call this when the command has ended."""
        self._output.close()

    @property
    def end_of_output(self) -> str:
        """The end of its output, even if the log could not be written."""
        return self._kept.end.decode(errors="replace")

    def check(self, status: int) -> None:
        """Raise if an exit status tells nothing about the trial and its batch size.

        Raises:
            LaunchError: The command could not be run, or was ended from outside.
        """
        by = status - guard.BY_SIGNAL
        if status in (guard.CANNOT_RUN, guard.NOT_FOUND):
            last = " ".join(self.end_of_output.splitlines()[-1:]).strip()
            raise LaunchError(
                f"the command could not be run: it ended with exit code {status}"
                + (f" and printed: {last}\n" if last else " and printed nothing. ")
                + f"Its output is in {self.log}."
            )
        if (
            by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) or self._process.returncode < 0
        ):  # < 0: a guard was killed
            raise LaunchError(
                f"the command was ended from outside by {_name(by)}. Run the job again to continue. Its output is in "
                f"{self.log}."
            )

    # ------------------------------------------------------------------ with

    def __enter__(self) -> Child:
        stops = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
        self._pauses = stops and threading.current_thread() is threading.main_thread()
        if self._pauses:
            signal.signal(signal.SIGTSTP, self._pause)
        return self

    def _pause(self, number: int, frame: FrameType | None) -> None:
        self.send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.send(signal.SIGCONT)  # this process was continued

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
            if self._process.poll() is None:
                self.end(*((signal.SIGINT,) if interrupted else ()), signal.SIGTERM)
            else:
                self._await_exit()
        finally:
            if self._pauses:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            self.close_output()
            self._guards.close()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a signal without a name
        return f"signal {number}"
