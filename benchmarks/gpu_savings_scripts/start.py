"""Starts a training script in a copy of a process that has already imported the large packages.

    python start.py SCRIPT ARGUMENT...        in the copy, if WARM_SOCKET names a server; else as usual
    python start.py --serve SOCKET MODULE...  the server

Importing torch and transformers takes ten seconds and more on some machines, and a benchmark starts a hundred runs.
The server never touches the GPU. A copy has the arguments, environment, folder, output and signals of its own start.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Any

SOCKET = "WARM_SOCKET"
NUMBER = struct.Struct("i")


def start(script: str, *arguments: str) -> int:
    """Have the script run by the server. Returns its exit status."""
    address = os.environ.get(SOCKET)
    if not address:
        os.execv(sys.executable, [sys.executable, script, *arguments])
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(address)
        body = json.dumps({"argv": [script, *arguments], "cwd": str(Path.cwd()), "env": dict(os.environ)}).encode()
        socket.send_fds(server, [NUMBER.pack(len(body))], [0, 1, 2])
        server.sendall(body)
        pid = NUMBER.unpack(server.recv(NUMBER.size))[0]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        ended = server.recv(NUMBER.size)
        return NUMBER.unpack(ended)[0] if ended else 1


def serve(address: str, *modules: str) -> None:
    """Import these modules, then start copies until this process is ended."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # CUDA does not survive a fork once it has begun
    for name in modules:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _supervise(client)
            client.close()


def _supervise(client: socket.socket) -> None:
    """Run one script in a child, and tell its client how it ended. If the client is gone, end the child."""
    size, files, _, _ = socket.recv_fds(client, NUMBER.size, 3)
    body = b""
    while len(body) < NUMBER.unpack(size)[0]:
        body += client.recv(1 << 16)
    pid = os.fork()
    if pid == 0:
        client.close()
        _run(json.loads(body), files)
    client.sendall(NUMBER.pack(pid))
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            client.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))
            os._exit(0)
        if select.select([client], [], [], 0.02)[0]:  # a client that waits sends nothing more
            os.kill(pid, signal.SIGKILL)
            os._exit(0)


def _run(order: dict[str, Any], files: list[int]) -> None:
    for place, file in enumerate(files):
        os.dup2(file, place)
    os.setsid()
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.argv = order["argv"]
    script = Path(order["argv"][0]).resolve()
    sys.path.insert(0, str(script.parent))
    status = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    sys.exit(start(*sys.argv[1:]))
