"""What Ray starts on a node: `zeus run` as a process of its own. It ends by SIGTERM, even if its worker is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from zeus.exit_codes import FAILED
from zeus.launch.process import tied
from zeus.launch.process.guard import shell_status
from zeus.settings import inherited


class Look(NamedTuple):
    """What the driver is told.

    Args:
        start: Differs for each start of the run.
        output: What the run has printed since the last look.
        status: Its exit status, as a shell says it. None: it is running.
    """

    start: str
    output: bytes
    status: int | None


class NodeRun:
    """A `zeus run` on this node. Ray makes it an actor, and makes it again if the worker or its node is lost.

    Args:
        command: The command.
        folder: Where it is run.
        run_id: Its ZEUS_RUN_ID. While an earlier start of the same run is still ending on this node, it waits.
        variables: For its environment, beside those of the worker. Ray has put CUDA_VISIBLE_DEVICES there.
    """

    def __init__(self, command: Sequence[str], folder: str, run_id: str, variables: Mapping[str, str]) -> None:
        self._start = uuid4().hex
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 as long as the actor
        self._process: subprocess.Popen[bytes] | None = None
        environ = {**inherited(), **variables, "ZEUS_RUN_ID": run_id}
        self._say(f"running on {socket.gethostname()}, GPUs {environ.get('CUDA_VISIBLE_DEVICES', 'not set')}.")
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", tied.__name__, str(os.getpid()), run_id, *command],
                cwd=folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ray kills the group of a worker that has ended
            )
        except OSError as failed:
            self._say(_cannot_start(folder, failed))

    def _say(self, text: str) -> None:
        os.write(self._output.fileno(), f"zeus: {text}\n".encode())

    def look(self, offset: int) -> Look:
        """What the run has printed from this byte on, and whether it has ended."""
        status = FAILED if self._process is None else self._process.poll()
        output = os.pread(self._output.fileno(), os.fstat(self._output.fileno()).st_size - offset, offset)
        return Look(self._start, output, None if status is None else shell_status(status))

    def stop(self) -> None:
        """Ask the run to end. It ends its command, restores the power limits and tells the store."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def _cannot_start(folder: str, failed: OSError) -> str:
    if not Path(folder).is_dir():
        return f"this node does not see the folder {folder}. All nodes must see it under the same path."
    return f"the run could not be started: {failed}"
