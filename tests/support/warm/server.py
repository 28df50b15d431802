"""Imports packages, and then runs programs in copies of itself. See python.c.

    server.py SOCKET PID EXECUTABLE PACKAGE...

A copy has the folder, arguments, environment and open files of whoever asked for it. It cannot be told from a new
interpreter, but for what it has imported already, and for its end: exit handlers run, but nothing is torn down. Its
`sys.executable` is EXECUTABLE. For `PACKAGE.*` all modules of a package are imported. The server ends when the process
PID does, and removes the folder of its socket. Copies that are running then go on.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import os
import pkgutil
import runpy
import selectors
import shutil
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, NoReturn

HEAD = struct.Struct("=4I")  # bytes in all, arguments, variables, files
NUMBER = struct.Struct("=i")
MOST_FILES = 250
NOT_LOADED = ("__main__", ".ray", "demo_training", "migrations")
HIGH = 512  # where a copy keeps files until each has the number that it should have


def load(package: str) -> None:
    """Import it; with `.*` at its end all its modules too, but for those that need other packages."""
    module = importlib.import_module(package.removesuffix(".*"))
    if package.endswith(".*"):
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            if not any(part in found.name for part in NOT_LOADED):
                importlib.import_module(found.name)


class Request(NamedTuple):
    """What to run, and where."""

    folder: bytes
    arguments: list[str]
    environ: dict[bytes, bytes]
    numbers: list[int]  # of the files, as whoever asked had them
    files: list[int]  # the same files, as they are numbered here


class Server:
    """Makes the copies, and says how each has ended."""

    def __init__(self, address: str, owner: int) -> None:
        self._ready = selectors.DefaultSelector()
        self._waiting: dict[int, socket.socket] = {}  # who waits for a copy's end, by its pid
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(f"{address}.new")
        self._door.listen(64)
        Path(f"{address}.new").rename(address)  # whoever finds it is answered
        self._ready.register(self._door, selectors.EVENT_READ, ("door", 0))
        self._ready.register(os.pidfd_open(owner), selectors.EVENT_READ, ("over", 0))

    def serve(self) -> Request | None:
        """None when it is over; in a copy what it is to run."""
        while True:
            for key, _ in self._ready.select():
                what, pid = key.data
                if what == "over":
                    return None
                if what == "door" and (wanted := self._copy()) is not None:
                    return wanted
                if what == "line" and self._forget(pid):  # whoever asked was killed
                    os.kill(pid, signal.SIGKILL)
                if what == "copy":
                    self._reap(key.fd, pid)

    def _copy(self) -> Request | None:
        line, _ = self._door.accept()
        wanted = _request(line)
        if wanted is None:
            line.close()
            return None
        pid = os.fork()
        if pid == 0:
            line.close()
            for key in list(self._ready.get_map().values()):
                os.close(key.fd)
            self._ready.close()
            return wanted
        for file in wanted.files:
            os.close(file)
        with contextlib.suppress(OSError):  # whoever asked was killed meanwhile
            line.sendall(NUMBER.pack(pid))
        self._waiting[pid] = line
        self._ready.register(os.pidfd_open(pid), selectors.EVENT_READ, ("copy", pid))
        self._ready.register(line, selectors.EVENT_READ, ("line", pid))
        return None

    def _forget(self, pid: int, status: int | None = None) -> bool:
        """Tell whoever waits for this copy how it has ended, if that is known. False: nobody waits any more."""
        line = self._waiting.pop(pid, None)
        if line is None:
            return False
        self._ready.unregister(line)
        with contextlib.suppress(OSError), line:
            if status is not None:
                line.sendall(NUMBER.pack(status))
        return True

    def _reap(self, descriptor: int, pid: int) -> None:
        self._ready.unregister(descriptor)
        os.close(descriptor)
        self._forget(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _request(line: socket.socket) -> Request | None:
    head, files, _, _ = socket.recv_fds(line, HEAD.size, MOST_FILES)
    if len(head) < HEAD.size:  # whoever asked was killed
        return None
    size, arguments, variables, count = HEAD.unpack(head)
    body = b""
    while len(body) < size - HEAD.size:
        part = line.recv(1 << 20)
        if not part:
            return None
        body += part
    numbers = list(struct.unpack_from(f"={count}i", body))
    folder, *texts = body[4 * count :].split(b"\0")[:-1]
    given = [os.fsdecode(text) for text in texts[:arguments]]
    environ = dict(text.partition(b"=")[::2] for text in texts[arguments : arguments + variables])
    return Request(folder, given, environ, numbers, files)


# ---------------------------------------------------------------------------------------------------- in a copy


def become(wanted: Request) -> None:
    """Take over the files, the folder and the environment."""
    os.setsid()
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, HIGH) for file in wanted.files]
    for file in wanted.files:
        os.close(file)
    for number in {0, 1, 2} - set(wanted.numbers):
        os.close(number)
    for file, number in zip(high, wanted.numbers, strict=True):
        os.dup2(file, number)  # to be inherited, as it was by whoever asked
        os.close(file)
    os.chdir(wanted.folder)
    os.environ.clear()
    os.environ.update({os.fsdecode(name): os.fsdecode(value) for name, value in wanted.environ.items()})
    if "COVERAGE_PROCESS_START" in os.environ:  # as coverage does in a new interpreter
        importlib.import_module("coverage").process_startup()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # copies must not draw the same numbers; `random` sees to that itself


def run(arguments: list[str]) -> NoReturn:
    """Be a new interpreter with these arguments, until its end."""
    at = 1
    while arguments[at] in ("-I", "-S", "-P", "-u"):
        at += 1
    flags = arguments[1:at]
    _open_streams(is_unbuffered="-u" in flags or bool(os.environ.get("PYTHONUNBUFFERED")))
    status = 0
    try:
        _run(arguments[at:], flags)
    except SystemExit as ended:
        status = _status(ended)
    except BaseException as error:
        status = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        begun = error.__traceback__
        where = begun and begun.tb_next and begun.tb_next.tb_next  # without this function and the next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(where), where
        sys.excepthook(type(error), error, where)
    _end(status)


def _open_streams(is_unbuffered: bool) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            raw = io.FileIO(number, "rb" if number == 0 else "wb", closefd=False)
        except OSError:
            setattr(sys, name, None)
            continue
        buffered = io.BufferedReader(raw) if number == 0 else raw if is_unbuffered else io.BufferedWriter(raw)
        stream = io.TextIOWrapper(
            buffered,
            encoding="utf-8",
            errors="backslashreplace" if number == 2 else None,
            line_buffering=number == 2 or raw.isatty(),
            write_through=is_unbuffered and number > 0,
        )
        stream.mode = "r" if number == 0 else "w"  # type: ignore[misc]  # as Python's own say
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(rest: list[str], flags: list[str]) -> None:
    is_isolated, first = "-I" in flags, rest[0]
    paths = [] if is_isolated else [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if not is_isolated and "-P" not in flags:
        paths.insert(0, {"-m": str(Path.cwd()), "-c": ""}.get(first, str(Path(first).resolve().parent)))
    sys.path[:0] = paths
    if first == "-m":
        sys.argv = ["-m", *rest[2:]]
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = ModuleType("__main__")
    if first == "-c":
        sys.argv, code = ["-c", *rest[2:]], compile(rest[1], "<string>", "exec")
    else:
        sys.argv, main.__file__ = rest, str(Path(first).absolute())
        code = compile(Path(first).read_bytes(), main.__file__, "exec")
    exec(code, main.__dict__)


def _status(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    sys.stderr.write(f"{ended.code}\n")
    return 1


def _end(status: int) -> NoReturn:
    """As an interpreter ends, but for what it tears down: nobody needs that any more."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for other threads
        atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except (OSError, ValueError):
                status = status or 120
        if status < 0:
            signal.signal(-status, signal.SIG_DFL)
            os.kill(os.getpid(), -status)
        os._exit(status)


def main() -> None:
    address, owner, sys.executable, *packages = sys.argv[1:]
    for package in packages:
        load(package)
    gc.collect()
    gc.freeze()  # so that the collector of a copy leaves these pages shared
    wanted = Server(address, int(owner)).serve()
    if wanted is None:
        shutil.rmtree(Path(address).parent, ignore_errors=True)
        return
    become(wanted)
    run(wanted.arguments)


if __name__ == "__main__":
    main()
