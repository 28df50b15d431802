"""Starts scripts in copies of a process that has imported the large packages already, which spares seconds a script.

    warm.py serve SOCKET PACKAGE...        import them, then wait; ends when its standard input does
    warm.py run SOCKET SCRIPT ARGUMENT...  run it there, with this process's folder, environment and output; for a
                                           module write `-m NAME`, as for Python itself

The copy imports Zeus itself, anew each time. It ends when whoever asked for it does, and its exit code is passed on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path

HEAD = 8  # bytes that say how long the request is


def run(address: str, arguments: list[str]) -> int:
    request = json.dumps({"arguments": arguments, "folder": str(Path.cwd()), "environ": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        socket.send_fds(line, [len(request).to_bytes(HEAD, "big")], [1, 2])
        line.sendall(request)
        answer = line.recv(4)
    return int.from_bytes(answer, "big", signed=True) if answer else 1


class Server:
    """Makes the copies, and says how each has ended."""

    def __init__(self, address: str) -> None:
        self.door = socket.socket(socket.AF_UNIX)
        self.door.bind(address)
        self.door.listen()
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.door, selectors.EVENT_READ, ("door", None, 0))
        self.ready.register(0, selectors.EVENT_READ, ("over", None, 0))

    def serve(self) -> list[str] | None:
        """None when it is over; in a copy the script that it is to run, with its arguments."""
        while True:
            for key, _ in self.ready.select():
                what, line, pid = key.data
                if what == "over":
                    return None
                if what == "door" and (script := self.copy()) is not None:
                    return script
                if what == "line":  # whoever asked is gone
                    self.ready.unregister(line)
                    os.kill(pid, signal.SIGTERM)
                if what == "copy":
                    self.reap(key.fd, line, pid)

    def copy(self) -> list[str] | None:
        line, _ = self.door.accept()
        head, outputs, _, _ = socket.recv_fds(line, HEAD, 2)
        request = b""
        while len(request) < int.from_bytes(head, "big"):
            request += line.recv(1 << 16)
        pid = os.fork()
        if pid == 0:
            line.close()
            return self.become(json.loads(request), outputs)
        for output in outputs:
            os.close(output)
        self.ready.register(os.pidfd_open(pid), selectors.EVENT_READ, ("copy", line, pid))
        self.ready.register(line, selectors.EVENT_READ, ("line", line, pid))
        return None

    def become(self, request: dict, outputs: list[int]) -> list[str]:
        for key in list(self.ready.get_map().values()):
            if key.data[0] != "over":
                os.close(key.fd)
        self.ready.close()
        for here, output in enumerate(outputs, start=1):
            os.dup2(output, here)
            os.close(output)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(request["environ"])
        os.chdir(request["folder"])
        arguments: list[str] = request["arguments"]
        return arguments

    def reap(self, descriptor: int, line: socket.socket, pid: int) -> None:
        self.ready.unregister(descriptor)
        os.close(descriptor)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if line in [key.fileobj for key in self.ready.get_map().values()]:
            self.ready.unregister(line)
            line.sendall(status.to_bytes(4, "big", signed=True))
        line.close()


def main() -> int:
    what, address, *rest = sys.argv[1:]
    if what == "run":
        status = run(address, rest)
        if status < 0:  # it was ended by a signal
            os.kill(os.getpid(), -status)
        return status
    for package in rest:
        importlib.import_module(package)
    gc.collect()
    gc.freeze()  # so that the collector of a copy leaves these pages shared
    script = Server(address).serve()
    if script is not None:
        start(script)
    return 0


def start(script: list[str]) -> None:
    """Be this script."""
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if script[0] == "-m":
        sys.argv, sys.path[0] = script[1:], str(Path.cwd())
        runpy.run_module(script[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = script, str(Path(script[0]).parent)
        runpy.run_path(script[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
