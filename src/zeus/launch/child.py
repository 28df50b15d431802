"""The command of one trial: in a process group of its own, its output in a log, and ended whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from zeus.errors import LaunchError
from zeus.launch import guard

OTHERS_SECONDS = 2.0
SHOWN_LINES = 15  # of the log of a command that failed


class Child:
    """A running command. Leaving its `with` block ends it.

    Args:
        command: Run without a shell, in the current folder.
        environ: All of its environment.
        log: Where its output is added; with `read` it comes to `output` instead, and whoever reads that closes it and
            keeps the log.
        read: Whether its output is read here.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path, *, read: bool = False) -> None:
        self.log = log
        there, self._here = os.pipe()
        try:
            with log.open("ab") as file:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, str(there), *command],
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if read else file,
                    bufsize=0,
                    stderr=subprocess.STDOUT,
                    pass_fds=(there,),
                    start_new_session=True,  # Ctrl-C is the launcher's, which passes it on
                )
        except OSError as failed:
            os.close(self._here)
            raise LaunchError(f"{command[0]} cannot be started: {failed}.") from failed
        finally:
            os.close(there)

    @property
    def output(self) -> IO[bytes]:
        """What it writes."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait(self, seconds: float) -> int | None:
        """Its exit status as a shell would say it; None while it runs on."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else guard.BY_SIGNAL - status

    def send(self, number: signal.Signals) -> None:
        """Send this to the command and all that it started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left, or none is ours (sudo)
            os.killpg(self._process.pid, number)

    def end(self, *signals: signal.Signals, grace: float = guard.GRACE_SECONDS) -> None:
        """Ask it to end, each time a little less kindly, and return when it has."""
        try:
            for number in signals:
                self.send(number)
                if self.wait(grace) is not None:
                    return
        finally:  # also where the user cannot wait
            if self._process.poll() is None:
                self.send(signal.SIGKILL)
                self._process.wait()
            self._end_the_others()

    def _end_the_others(self) -> None:
        """Those that it started free the GPU as they go: a moment to do so, which their guard has asked for.

        One that was killed could not ask. What nobody reaps seems to stay for ever.
        """
        if self._process.returncode < 0:
            self.send(signal.SIGKILL)
        deadline = time.monotonic() + OTHERS_SECONDS
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < deadline:
                os.killpg(self._process.pid, 0)
                time.sleep(0.01)
            os.killpg(self._process.pid, signal.SIGKILL)

    def check(self, status: int) -> None:
        """Whether an exit status says something about the trial at all, of whatever batch size.

        Raises:
            LaunchError: The command could not be run, or somebody ended it.
        """
        by = status - guard.BY_SIGNAL
        if status in (guard.CANNOT_RUN, guard.NOT_FOUND):
            raise LaunchError(
                f"the command could not be run (exit code {status}): {' '.join(self.last_lines()[-1:])} "
                f"Its output is in {self.log}."
            )
        if by in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) or self._process.returncode < 0:  # or its guard was
            raise LaunchError(
                f"the command was ended from outside by {signal.Signals(by).name}. Run it again to go on; its output "
                f"is in {self.log}."
            )

    def last_lines(self) -> list[str]:
        """The end of its log."""
        try:
            with self.log.open(errors="replace") as file:
                return [line.rstrip() for line in deque(file, SHOWN_LINES)]
        except OSError:
            return []

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if self._process.poll() is None:
                interrupted = kind is not None and issubclass(kind, KeyboardInterrupt)
                self.end(*((signal.SIGINT,) if interrupted else ()), signal.SIGTERM)
            else:
                self._end_the_others()
        finally:
            os.close(self._here)
