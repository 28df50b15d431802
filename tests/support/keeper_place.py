"""A separate virtual machine for each test of the keeper, with helpers to run processes on it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.nvml.fake import FakeNvml
from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.find import machine
from zeus.device.gpu import Gpu
from zeus.device.keeper import Lease, lend

ASKED_SECONDS = 2.0  # for a process to end before it is killed
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

TRAINER = """
import logging, os, random, sys, time
from zeus.device.find import machine
from zeus.device.keeper import Observing, lend
logging.basicConfig()
print("started", flush=True)
gpus = machine()
lease = lend(gpus)
if isinstance(lease, Observing):
    print("observing", lease.reason, flush=True)
    sys.exit()
what = sys.argv[1]
if what == "fork":  # as a DataLoader forks its workers
    if (worker := os.fork()) == 0:
        time.sleep(600)
        os._exit(0)
    print("worker", worker, flush=True)
if what == "raw-fork":  # behind Python's back, so that no hook runs in the child
    import ctypes
    if (worker := ctypes.PyDLL(None).fork()) == 0:
        time.sleep(600)
        os._exit(0)
    print("worker", worker, flush=True)
lease.set_limit(1.5 * gpus[0].spec.min_watts)
print("lowered", flush=True)
if what == "end":
    sys.exit()
while what == "churn":
    lease.set_limit(random.choice([1.1, 1.25, 1.4, 1.75]) * gpus[0].spec.min_watts)
sys.stdin.readline()
"""


@dataclass
class Place:
    """A machine of its own for one test: how every process finds its cards, and how to look at them."""

    env: dict[str, str]
    gpus: Sequence[Gpu]
    folder: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.found = self.gpus[0].limit()
        self.low = 1.5 * self.gpus[0].spec.min_watts
        self.lower = 1.25 * self.gpus[0].spec.min_watts

    def limits(self) -> list[float]:
        return [gpu.limit() for gpu in self.gpus]

    def notes(self) -> list[Path]:
        return list((self.folder / "notes").glob("*.json"))

    def start(self, *command: str, **options: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # type: ignore[call-overload]
            [sys.executable, *command],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )
        self.running.append(process)
        return process  # type: ignore[no-any-return]

    def train(self, what: str, **options: object) -> subprocess.Popen[str]:
        return self.start("-c", TRAINER, what, **options)

    def serve(self, *options: str, path: Path | None = None) -> subprocess.Popen[str]:
        """A system keeper; processes started from now on turn to it."""
        path = path or self.folder / "keeper.sock"
        path.unlink(missing_ok=True)
        self.env["ZEUS_KEEPER"] = str(path)
        process = self.start("-m", "zeus.device.keeper", "--socket", str(path), *options, stderr=subprocess.DEVNULL)
        eventually(path.is_socket)
        return process

    def is_untouched(self) -> bool:
        return self.limits() == [self.found] * len(self.gpus)

    def is_back(self) -> bool:
        return self.is_untouched() and not self.notes()

    def is_lowered(self) -> bool:
        return self.limits() == [self.low] * len(self.gpus)


def virtual(folder: Path, request: pytest.FixtureRequest) -> Place:
    env = {"ZEUS_GPU": "virtual:v100x2", "ZEUS_VIRTUAL_STATE": str(folder / "cards")}
    return Place(env, machine(env), folder)


def nvidia(folder: Path, request: pytest.FixtureRequest) -> Place:
    if os.geteuid() != 0:
        pytest.skip("only root is given a private keeper for NVIDIA cards")
    driver: FakeNvml = request.getfixturevalue("fake_nvml")
    return Place(driver.env(ZEUS_GPU="nvml"), machine({"ZEUS_GPU": "nvml"}), folder)


def inhabited(
    provide: Callable[[Path, pytest.FixtureRequest], Place],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Place]:
    """A place for one test, for this process and those that it starts. All of them are gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="zeus-keeper-"))  # pytest's own are too deep for the name of a socket
    for name in ("ZEUS_KEEPER", "ZEUS_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(folder / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(folder / "notes"))
    place = provide(folder, request)
    for name in ("ZEUS_GPU", "LD_LIBRARY_PATH"):  # for the private keepers and commands of this process
        if name in place.env:
            monkeypatch.setenv(name, place.env[name])
    place.env = {**os.environ, **place.env, "PYTHONPATH": str(SOURCES)}
    yield place
    for process in place.running:
        process.terminate()  # a system keeper that is killed while it grants a lease leaves its note behind
    for process in place.running:
        try:
            process.communicate(timeout=ASKED_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    try:
        eventually(lambda: not place.notes() and not inhabitants(folder))
    finally:
        eventually(lambda: _removed(folder))  # a keeper that is about to end may still write there


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def says(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    end = process.stderr.read()[-2000:] if process.stderr is not None else ""
    raise AssertionError(f"the process ended without saying {word!r}: {end}")


def pipes_of(pid: int) -> set[str]:
    names = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed just now
            names.add(str(fd.readlink()))
    return {name for name in names if name.startswith("pipe:")}


def inhabitants(folder: Path) -> list[int]:
    """Processes that were started to use this place and still live, a keeper that is only just starting among them."""
    mark, found = f"={folder}/".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to look at
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def keepers_of(place: Place) -> set[int]:
    return {json.loads(note.read_text())["pid"] for note in place.notes()}


def stat_of(pid: int) -> list[str]:
    """State, parent, ... of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_dead(pid: int) -> bool:
    try:
        stat = stat_of(pid)
        # Whether anybody has collected it yet is not our concern; but while a thread of it lives, so do its locks.
        return stat[0] in "ZX" and int(stat[17]) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


def lease_of(place: Place) -> Lease:
    lease = lend(place.gpus, socket=place.env.get("ZEUS_KEEPER") or None)
    assert isinstance(lease, Lease)
    return lease


def kill_keepers(place: Place) -> None:
    for pid in keepers_of(place):
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: is_dead(pid))  # type: ignore[misc]


BY_HAND = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    sock.connect(sys.argv[1])
except PermissionError:
    sys.exit(print("PermissionError"))
for request in sys.argv[2:]:
    try:
        sock.send(request.encode())
    except BrokenPipeError:  # refused already; the reason can still be read
        pass
    answer = json.loads(sock.recv(65536))
    if not answer["ok"]:
        sys.exit(print(answer["error"]))
print("done")
"""


def talk_by_hand(place: Place, user: str, groups: list[str], *requests: dict[str, Any]) -> str:
    """What a user gets who makes these requests without Zeus: `done`, or the error that ended it."""
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", BY_HAND, place.env["ZEUS_KEEPER"], *map(json.dumps, requests)],
        check=False,
        user=user,
        group=65534,
        extra_groups=groups,
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
