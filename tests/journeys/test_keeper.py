"""The keeper across processes: whoever is killed, whenever, the limit found comes back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from nvml.fake import FakeNvml
from zeus.cli.keeper import keeper as keeper_command
from zeus.cli.keeper import restore as restore_command
from zeus.device.find import machine
from zeus.device.gpu import Gpu
from zeus.device.keeper import Lease, Observing, lend, status
from zeus.errors import InputError, KeeperLost, ReadOnly

DEADLINE_SECONDS = 20.0  # for a machine that is very busy; benchmarks/keeper_kill.py holds the keeper to 1 s
SOURCE = Path(__file__).parents[2] / "src"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

TRAINER = """
import os, random, sys, time
from zeus.device.find import machine
from zeus.device.keeper import Observing, lend
print("started", flush=True)
gpus = machine()
lease = lend(gpus)
if isinstance(lease, Observing):
    print("observing", lease.reason, flush=True)
    sys.exit()
what = sys.argv[1]
if what == "fork":  # as a DataLoader forks its workers
    if (worker := os.fork()) == 0:
        time.sleep(60)
        os._exit(0)
    print("worker", worker, flush=True)
if what == "raw-fork":  # behind Python's back, so that no hook runs in the child
    import ctypes
    if (worker := ctypes.PyDLL(None).fork()) == 0:
        time.sleep(60)
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

    def serve(self, *options: str) -> subprocess.Popen[str]:
        """A system keeper; processes started from now on turn to it."""
        path = self.folder / "keeper.sock"
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


@pytest.fixture(params=[virtual, nvidia], ids=lambda provide: provide.__name__)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    folder = Path(tempfile.mkdtemp(prefix="zeus-keeper-"))  # pytest's own are too deep for the name of a socket
    for name in ("ZEUS_KEEPER", "ZEUS_READ_ONLY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ZEUS_VIRTUAL_STATE", str(folder / "cards"))
    monkeypatch.setenv("ZEUS_KEEPER_STATE", str(folder / "notes"))
    place: Place = request.param(folder, request)
    for name in ("ZEUS_GPU", "LD_LIBRARY_PATH"):  # for the private keepers and commands of this process
        if name in place.env:
            monkeypatch.setenv(name, place.env[name])
    place.env = {**os.environ, **place.env, "PYTHONPATH": str(SOURCE)}
    yield place
    for process in place.running:
        process.kill()
        process.communicate()
    try:
        eventually(lambda: not place.notes())
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["private", "system"])
def kind(request: pytest.FixtureRequest, place: Place) -> str:
    if request.param == "system":
        place.serve()
    return str(request.param)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.01)


def says(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(word):
            return line.removeprefix(word).strip()
    raise AssertionError(f"the process ended without saying {word!r}")


@pytest.mark.parametrize("seed", range(4))
def test_a_trainer_killed_at_a_random_moment(place: Place, kind: str, seed: int) -> None:
    trainer = place.train("churn")
    says(trainer, "started")
    time.sleep(random.Random(f"{kind}:{seed}").uniform(0, 0.6))  # from before the lease to well into it
    trainer.kill()
    trainer.wait()
    eventually(place.is_back)


@pytest.mark.parametrize("what", ["fork", "raw-fork"])
def test_workers_that_outlive_their_killed_trainer_do_not_keep_the_limit(place: Place, kind: str, what: str) -> None:
    trainer = place.train(what)
    worker = int(says(trainer, "worker"))
    try:
        says(trainer, "lowered")
        trainer.kill()
        trainer.wait()
        eventually(place.is_back)
        os.kill(worker, 0)
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_trainer_that_ends_has_its_limit_back_before_it_is_gone(place: Place, kind: str) -> None:
    trainer = place.train("end")
    assert trainer.communicate(timeout=DEADLINE_SECONDS)[0].split() == ["started", "lowered"]
    assert place.is_untouched()


def test_ctrl_c_reaches_the_trainer_and_not_its_keeper(place: Place) -> None:
    trainer = place.train("hold", start_new_session=True, stderr=subprocess.DEVNULL)
    says(trainer, "lowered")
    os.killpg(trainer.pid, signal.SIGINT)
    assert trainer.wait(DEADLINE_SECONDS) != 0
    eventually(place.is_back)


def test_whoever_waits_for_the_trainers_output_to_end_does_not_wait_for_the_keeper(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    for pid in keepers_of(place):
        assert not pipes_of(pid) & pipes_of(trainer.pid)
    trainer.kill()
    assert trainer.communicate(timeout=DEADLINE_SECONDS)[0] == ""
    eventually(place.is_back)


def pipes_of(pid: int) -> set[str]:
    names = {str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    return {name for name in names if name.startswith("pipe:")}


def keepers_of(place: Place) -> set[int]:
    return {json.loads(note.read_text())["pid"] for note in place.notes()}


def test_a_private_keeper_is_nobodys_child_and_ends_with_its_lease(place: Place) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        (pid,) = keepers_of(place)
        assert int(stat_of(pid)[1]) != os.getpid()
    eventually(lambda: is_dead(pid))


def stat_of(pid: int) -> list[str]:
    """State, parent, ... of a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def is_dead(pid: int) -> bool:
    try:
        return stat_of(pid)[0] in "ZX"  # whether anybody has collected it yet is not our concern
    except (FileNotFoundError, ProcessLookupError):
        return True


def lease_of(place: Place) -> Lease:
    lease = lend(place.gpus, socket=place.env.get("ZEUS_KEEPER") or None)
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_keeper_told_to_stop_first_puts_everything_back(place: Place, number: int) -> None:
    keeper = place.serve()
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        keeper.send_signal(number)
        assert keeper.wait(DEADLINE_SECONDS) == 0
        assert place.is_back()
        assert not (place.folder / "keeper.sock").exists()
        with pytest.raises(KeeperLost):
            lease.set_limit(place.low)


def test_a_private_keeper_told_to_stop_puts_everything_back(place: Place) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        for pid in keepers_of(place):
            os.kill(pid, signal.SIGTERM)
        eventually(place.is_back)
        with pytest.raises(KeeperLost):
            lease.set_limit(place.low)


def test_a_killed_system_keeper_puts_back_when_it_starts_again(place: Place) -> None:
    keeper = place.serve()
    lease = lease_of(place)
    lease.set_limit(place.low)
    keeper.kill()
    keeper.wait()
    assert place.is_lowered()
    with pytest.raises(KeeperLost):
        lease.set_limit(place.lower)
    place.serve()
    eventually(place.is_back)
    lease.release()


def kill_keepers(place: Place) -> None:
    for pid in keepers_of(place):
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: is_dead(pid))  # type: ignore[misc]


def test_a_trainer_whose_private_keeper_was_killed_has_its_limit_put_back_at_its_end(place: Place) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    kill_keepers(place)
    with pytest.raises(KeeperLost):
        lease.set_limit(place.lower)
    lease.release()
    eventually(place.is_back)


def test_the_next_trainer_finds_the_true_limit_after_both_were_killed(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    os.kill(trainer.pid, signal.SIGSTOP)  # so that it cannot act while its keeper is killed first
    kill_keepers(place)
    trainer.kill()
    trainer.wait()
    assert place.is_lowered()
    with lease_of(place) as lease:
        assert set(lease.found.values()) == {place.found}


def test_zeus_restore_puts_back_by_hand_and_says_so(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    command = CliRunner()
    on_lease = command.invoke(restore_command, ["--json"])
    assert (on_lease.exit_code, json.loads(on_lease.output)) == (0, {"gpus": []})
    assert place.is_lowered()
    os.kill(trainer.pid, signal.SIGSTOP)
    kill_keepers(place)
    done = command.invoke(restore_command, ["--json"])
    assert done.exit_code == 0
    assert [(g["ending"], g["limit_watts"]) for g in json.loads(done.output)["gpus"]] == [("restored", place.found)] * 2
    assert place.is_back()
    assert "Nothing" in command.invoke(restore_command, []).output


def test_zeus_restore_fails_where_it_could_not(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    kill_keepers(place)
    monkeypatch.setenv("ZEUS_READ_ONLY", "1")
    assert CliRunner().invoke(restore_command, []).exit_code == 1
    monkeypatch.setenv("ZEUS_READ_ONLY", "0")
    assert CliRunner().invoke(restore_command, []).exit_code == 0
    lease.release()


def test_a_gpu_is_lent_to_one_at_a_time_whoever_the_keeper_is(place: Place) -> None:
    with lease_of(place):
        place.serve()
        refused = lend(place.gpus, socket=place.env["ZEUS_KEEPER"])
        assert isinstance(refused, Observing)
        assert f"process {os.getpid()}" in refused.reason
    with lease_of(place) as lease:
        assert lease.kind == "system"
        assert status(place.gpus, place.env["ZEUS_KEEPER"])["lent"] == sorted(lease.found)


def test_of_two_trainers_that_start_at_once_one_gets_all(place: Place, kind: str) -> None:
    trainers = [place.train("end") for _ in range(2)]
    words = [trainer.communicate(timeout=DEADLINE_SECONDS)[0].split()[1] for trainer in trainers]
    assert "lowered" in words
    assert place.is_untouched()


def test_limits_are_checked_by_the_keeper_and_raised_as_the_same_error(place: Place, kind: str) -> None:
    with lease_of(place) as lease:
        for watts in (place.gpus[0].spec.min_watts - 1, place.found + 1, float("nan")):
            with pytest.raises(InputError):
                lease.set_limit(watts)
        with pytest.raises(InputError, match="not part of this lease"):
            lease.set_limit(place.low, gpu="GPU-none")
        assert place.is_untouched()
        uuid = place.gpus[1].spec.uuid
        assert lease.set_limit(place.low, gpu=place.gpus[1]) == {uuid: place.low}
        assert place.limits() == [place.found, place.low]
    with pytest.raises(KeeperLost):
        lease.set_limit(place.low)
    lease.release()


def test_a_forgotten_lease_ends(place: Place, kind: str) -> None:
    lease = lease_of(place)
    lease.set_limit(place.low)
    del lease
    eventually(place.is_back)


def test_in_a_forked_child_the_lease_does_nothing(place: Place, kind: str) -> None:
    with lease_of(place) as lease:
        lease.set_limit(place.low)
        if (child := os.fork()) == 0:
            code = 1
            with contextlib.suppress(BaseException):
                try:
                    lease.set_limit(place.lower)
                except KeeperLost:
                    lease.release()
                    code = 0
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert place.is_lowered()
        lease.set_limit(place.lower)


def test_read_only_only_observes_and_refuses_a_lease_taken_before(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease_of(place) as lease:
        monkeypatch.setenv("ZEUS_READ_ONLY", "1")
        with pytest.raises(ReadOnly):
            lease.set_limit(place.low)
        observing = lend(place.gpus)
        assert isinstance(observing, Observing)
        assert "ZEUS_READ_ONLY" in observing.reason
        assert "ZEUS_READ_ONLY" in status(place.gpus)["why_not"]


def test_where_no_keeper_answers_zeus_observes_and_says_what_to_do(place: Place) -> None:
    observing = lend(place.gpus, socket=place.folder / "none.sock")
    assert isinstance(observing, Observing)
    assert "zeus keeper --socket" in observing.reason


def test_a_second_keeper_on_the_same_socket_is_refused_and_a_dead_ones_is_replaced(place: Place) -> None:
    first = place.serve()
    path = place.env["ZEUS_KEEPER"]
    second = place.start("-m", "zeus.device.keeper", "--socket", path, stderr=subprocess.PIPE)
    assert "already" in second.communicate(timeout=DEADLINE_SECONDS)[1]
    assert second.returncode == 2
    assert status(place.gpus, path)["use"] == "system"
    first.kill()
    first.wait()
    assert Path(path).is_socket()
    third = place.start("-m", "zeus.device.keeper", "--socket", path, stderr=subprocess.DEVNULL)
    eventually(lambda: status(place.gpus, path)["use"] == "system")
    assert third.poll() is None


def test_a_file_that_is_no_socket_is_not_replaced(place: Place) -> None:
    (place.folder / "precious").write_text("data")
    result = place.start("-m", "zeus.device.keeper", "--socket", str(place.folder / "precious"), stderr=subprocess.PIPE)
    assert "not a socket" in result.communicate(timeout=DEADLINE_SECONDS)[1]
    assert (place.folder / "precious").read_text() == "data"


@as_root
@pytest.mark.parametrize("place", [nvidia], ids=["nvidia"], indirect=True)  # anybody may set virtual cards
def test_without_rights_and_without_a_keeper_zeus_observes_and_says_what_to_do(place: Place) -> None:
    script = "import os; from zeus.device.find import machine; from zeus.device.keeper import lend; gpus = machine()\n"
    script += "[gpu.spec for gpu in gpus]; os.seteuid(65534); print(lend(gpus).reason)"
    trainer = place.start("-c", script, stderr=subprocess.DEVNULL)
    assert "zeus keeper" in trainer.communicate(timeout=DEADLINE_SECONDS)[0]
    assert place.is_untouched()


@as_root
@pytest.mark.parametrize("open_to_all", [False, True])
def test_nobody_outside_the_group_can_set_a_limit(place: Place, open_to_all: bool) -> None:
    place.serve("--group", "daemon")
    place.folder.chmod(0o755)
    path = Path(place.env["ZEUS_KEEPER"])
    assert path.stat().st_mode & 0o777 == 0o660
    if open_to_all:  # even then the kernel tells the keeper who it is
        path.chmod(0o666)
    assert talk_as(place, "nobody", []) == ("LeaseRefused" if open_to_all else "PermissionError")
    assert talk_as(place, "nobody", ["daemon"]) == "leased"
    assert place.is_untouched()


def talk_as(place: Place, user: str, groups: list[str]) -> str:
    """What a user outside Zeus gets who speaks the protocol by hand."""
    script = """
import json, socket, sys
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect(sys.argv[1])
    stream = sock.makefile("rw")
    for request in ({"op": "hello", "zeus": 1}, {"op": "lease", "gpus": sys.argv[2:]}):
        try:
            print(json.dumps(request), file=stream, flush=True)
        except BrokenPipeError:
            pass
        answer = json.loads(stream.readline())
        if not answer["ok"]:
            sys.exit(print(answer["error"]))
    print("leased")
except PermissionError:
    print("PermissionError")
"""
    uuids = [gpu.spec.uuid for gpu in place.gpus]
    done = subprocess.run(
        ["/usr/bin/env", "python3", "-I", "-c", script, place.env["ZEUS_KEEPER"], *uuids],
        check=False,
        user=user,
        group=65534,
        extra_groups=groups,
        cwd="/",
        env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_input_kills_the_keeper_nor_the_leases_of_others(place: Place) -> None:
    keeper = place.serve()
    path = place.env["ZEUS_KEEPER"]
    lease = lease_of(place)
    lease.set_limit(place.low)
    hello = b'{"op": "hello", "zeus": 1}\n'

    @settings(max_examples=40, deadline=None)
    @given(st.booleans(), st.binary(max_size=500) | st.sampled_from([b"[" * 50000, b"x" * 70000, b"\n" * 1000]))
    def send(greet: bool, data: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.settimeout(DEADLINE_SECONDS)
            sock.connect(path)
            sock.sendall((hello if greet else b"") + data + b"\n")
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass

    send()
    assert keeper.poll() is None
    assert lease.set_limit(place.lower)
    assert place.limits() == [place.lower] * 2
    lease.release()


def test_bad_input_is_answered_and_the_lease_goes_on(place: Place) -> None:
    place.serve()
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(DEADLINE_SECONDS)
    sock.connect(place.env["ZEUS_KEEPER"])
    with sock, sock.makefile("rwb") as stream:

        def ask(line: bytes) -> dict[str, object]:
            stream.write(line + b"\n")
            stream.flush()
            answer: dict[str, object] = json.loads(stream.readline())
            return answer

        uuid = place.gpus[0].spec.uuid
        assert ask(b'{"op": "release"}')["error"] == "InputError"  # before hello
        assert ask(b'{"op": "hello", "zeus": 99}')["error"] == "InputError"
        assert ask(b'{"op": "hello", "zeus": 1}')["ok"]
        assert (
            ask(json.dumps({"op": "set", "watts": {uuid: place.low}}).encode())["error"] == "InputError"
        )  # before lease
        assert ask(json.dumps({"op": "lease", "gpus": [uuid]}).encode())["ok"]
        assert ask(json.dumps({"op": "lease", "gpus": [uuid]}).encode())["error"] == "InputError"
        for line in (b"", b"[]", b"\xff", b'{"op": "set"}', b'{"op": "set", "watts": {"x": true}}'):
            assert ask(line)["error"] == "InputError"
        assert ask(json.dumps({"op": "set", "watts": {uuid: place.low}}).encode())["limits"] == {uuid: place.low}
    eventually(place.is_back)


def test_the_unit_is_printed_for_this_interpreter_and_keeps_the_notes(place: Place) -> None:
    unit = CliRunner().invoke(keeper_command, ["--print-unit", "--socket", "/run/zeus/keeper.sock", "--group", "gpu"])
    assert (
        f"ExecStart={sys.executable} -P -m zeus.device.keeper --socket /run/zeus/keeper.sock --group gpu\n"
        in unit.output
    )
    assert "RuntimeDirectoryPreserve=yes" in unit.output
