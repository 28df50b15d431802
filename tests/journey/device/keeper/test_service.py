"""The system keeper: its socket, who may use it, and what nobody can do to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from support.keeper_place import (
    Place,
    as_root,
    kill_keepers,
    lease_of,
    says,
    stat_of,
    talk_by_hand,
    virtual,
)
from support.waiting import PATIENCE_SECONDS, eventually, limits
from zeus.cli.keeper import keeper as keeper_command
from zeus.device.gpu import Gpu
from zeus.device.keeper import Observing, lend, server, status
from zeus.device.keeper.keeper import Keeper
from zeus.device.keeper.notes import Notes
from zeus.device.keeper.policy import KeeperPolicy
from zeus.device.virtual import VirtualMachine
from zeus.errors import KeeperLost


def test_a_second_keeper_on_the_same_socket_is_refused_and_a_dead_ones_is_replaced(place: Place) -> None:
    first = place.serve()
    path = place.env["ZEUS_KEEPER"]
    second = place.start("-m", "zeus.device.keeper", "--socket", path, stderr=subprocess.PIPE)
    assert "already" in second.communicate(timeout=PATIENCE_SECONDS)[1]
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
    assert "not a socket" in result.communicate(timeout=PATIENCE_SECONDS)[1]
    assert (place.folder / "precious").read_text() == "data"


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_root_serves_nowhere_where_others_could_put_a_link_in_place_of_the_socket(place: Place, mode: int) -> None:
    folder = place.folder / "open"
    folder.mkdir()
    folder.chmod(mode)
    path = folder / "keeper.sock"
    keeper = place.start("-m", "zeus.device.keeper", "--socket", str(path), stderr=subprocess.PIPE)
    assert f"other users can replace files in {folder}" in keeper.communicate(timeout=PATIENCE_SECONDS)[1]
    assert keeper.returncode == 1
    assert not path.exists()
    folder.chmod(mode | 0o1000)  # sticky: only the owner of a file can replace it
    place.serve(path=path)


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
    assert talk_as(place, "nobody", ["daemon"]) == "done"
    eventually(lambda: not place.notes())
    assert place.is_untouched()


def client() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def talk_as(place: Place, user: str, groups: list[str]) -> str:
    """What a user outside Zeus gets who asks for a lease on all GPUs."""
    requests = {"op": "hello", "zeus": 1}, {"op": "lease", "gpus": [gpu.spec.uuid for gpu in place.gpus]}
    return talk_by_hand(place, user, groups, *requests)


def test_no_input_kills_the_keeper_nor_the_leases_of_others(place: Place) -> None:
    keeper = place.serve()
    path = place.env["ZEUS_KEEPER"]
    lease = lease_of(place)
    lease.set_limit(place.low)

    @settings(max_examples=40)
    @given(st.booleans(), st.binary(max_size=500) | st.sampled_from([b"[" * 50000, b"x" * 70000, b"\n" * 1000]))
    def send(greet: bool, data: bytes) -> None:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
            contextlib.suppress(BrokenPipeError, ConnectionResetError),
        ):
            sock.settimeout(PATIENCE_SECONDS)
            sock.connect(path)
            if greet:
                sock.send(b'{"op": "hello", "zeus": 1}')
            sock.send(data)
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
    sock = client()
    sock.settimeout(PATIENCE_SECONDS)
    sock.connect(place.env["ZEUS_KEEPER"])
    with sock:

        def ask(message: bytes) -> dict[str, object]:
            sock.send(message)
            answer: dict[str, object] = json.loads(sock.recv(65536))
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
        for line in (b" ", b"[]", b"\xff", b'{"op": "set"}', b'{"op": "set", "watts": {"x": true}}'):
            assert ask(line)["error"] == "InputError"
        assert ask(json.dumps({"op": "set", "watts": {uuid: place.low}}).encode())["limits"] == {uuid: place.low}
    eventually(place.is_back)


def test_what_a_dead_private_keeper_left_is_put_back_however_busy_the_system_keeper_is(place: Place) -> None:
    trainer = place.train("hold")
    says(trainer, "lowered")
    place.env["ZEUS_TIME_LIMITS"] = limits(keeper_recovery=0.2)
    place.serve()
    os.kill(trainer.pid, signal.SIGSTOP)
    kill_keepers(place)
    trainer.kill()

    def is_back_after_one_more_connection() -> bool:
        with client() as sock:
            sock.connect(place.env["ZEUS_KEEPER"])
        return place.is_back()

    eventually(is_back_after_one_more_connection)


@as_root
def test_one_user_cannot_take_all_connections(place: Place) -> None:
    place.serve("--group", "daemon")
    place.folder.chmod(0o755)
    with contextlib.ExitStack() as held:
        while True:
            sock = held.enter_context(client())
            sock.settimeout(PATIENCE_SECONDS)
            sock.connect(place.env["ZEUS_KEEPER"])
            with contextlib.suppress(BrokenPipeError):  # refused already
                sock.sendall(b'{"op": "hello", "zeus": 1}')
            if not json.loads(sock.recv(65536))["ok"]:
                break
        assert talk_as(place, "nobody", ["daemon"]) == "done"
    eventually(lambda: not place.notes())  # a keeper that is killed before leaves them behind


def test_what_a_client_sent_ahead_is_not_done_once_the_keeper_must_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "zeus.device.keeper")
    gpus = VirtualMachine.in_memory("v100").gpus
    stop, stopped = os.pipe()

    def cards() -> Sequence[Gpu]:  # looked for when the lease is taken
        os.write(stopped, b"x")
        return gpus

    uuid = gpus[0].spec.uuid
    requests = {"op": "hello", "zeus": 1}, {"op": "lease", "gpus": [uuid]}, {"op": "set", "watts": {uuid: 150}}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        for request in requests:
            ours.send(json.dumps(request).encode())
        keeper = Keeper(cards, Notes(tmp_path))
        server.KeeperConnection(theirs, server.peer_of(theirs), keeper, "system", stop, KeeperPolicy()).serve()
    logged = [record.getMessage() for record in caplog.records]
    assert any("leased" in line for line in logged)
    assert not any(line.startswith("set") for line in logged)
    os.close(stop)
    os.close(stopped)


def test_a_connection_without_a_lease_ends_however_much_it_talks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LEASELESS_SECONDS", 0.2)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    keeper = Keeper(VirtualMachine.in_memory("v100").gpus.copy, Notes(tmp_path))
    stop, stopped = os.pipe()
    serving = threading.Thread(
        target=server.KeeperConnection(theirs, server.peer_of(theirs), keeper, "system", stop, KeeperPolicy()).serve
    )
    serving.start()
    try:
        with ours, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            ours.settimeout(PATIENCE_SECONDS)
            deadline = time.monotonic() + PATIENCE_SECONDS
            while time.monotonic() < deadline:
                ours.sendall(b'{"op": "hello", "zeus": 1}')
                if not ours.recv(65536):
                    break
                time.sleep(0.01)
            else:
                pytest.fail("it talked on for ever")
    finally:
        os.write(stopped, b"x")
        serving.join(PATIENCE_SECONDS)
        os.close(stop)
        os.close(stopped)


@pytest.mark.parametrize("place", [virtual], ids=["virtual"], indirect=True)  # it takes its time on any card
def test_nobody_waits_long_for_a_keeper_that_was_stopped(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = place.serve()
    lease = lease_of(place)
    lease.set_limit(place.low)
    monkeypatch.setenv("ZEUS_TIME_LIMITS", limits(keeper_greeting=0.3, keeper_answer=0.5))
    keeper.send_signal(signal.SIGSTOP)
    rescue = threading.Timer(45, keeper.send_signal, [signal.SIGCONT])
    rescue.start()
    try:
        with pytest.raises(KeeperLost, match=r"did not answer within 0\.5 s"):
            lease.set_limit(place.lower)
        observing = lend(place.gpus, socket=place.env["ZEUS_KEEPER"])
        assert isinstance(observing, Observing)
        assert "suspended" in observing.reason
        assert stat_of(keeper.pid)[0] == "T", "they waited until it was let go on"
    finally:
        rescue.cancel()
        keeper.send_signal(signal.SIGCONT)
    eventually(place.is_back)


def test_the_unit_is_printed_for_this_interpreter_and_keeps_the_notes(place: Place) -> None:
    unit = CliRunner().invoke(keeper_command, ["--print-unit", "--socket", "/run/zeus/keeper.sock", "--group", "gpu"])
    assert (
        f"ExecStart={sys.executable} -P -m zeus.device.keeper --socket /run/zeus/keeper.sock --group gpu\n"
        in unit.output
    )
    assert "RuntimeDirectoryPreserve=yes" in unit.output
