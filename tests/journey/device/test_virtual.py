"""Virtual cards that several processes share, and what their clock does to those who watch."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import SOURCES
from support.waiting import PATIENCE_SECONDS, eventually
from zeus.device.ranks import shared_folder
from zeus.device.virtual import VirtualMachine, virtual_gpus
from zeus.device.virtual.state import CardState, FileState, MachineState
from zeus.errors import InputError, NotPermitted
from zeus.monitor import PowerMonitor

STATE = "ZEUS_VIRTUAL_STATE"


def state(path: Path, kind: str = "v100x1") -> FileState:
    return FileState(path, kind, MachineState([CardState(limit_watts=250.0)]))


def test_a_limit_set_by_another_process_during_a_step_is_not_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change reads the clock, which is kept in the same file: the lock must still be held afterwards."""
    monkeypatch.setenv(STATE, str(tmp_path / "cards"))
    machine = virtual_gpus("v100?clock=virtual")[0].machine
    other = os.open(tmp_path / "cards", os.O_RDWR)
    with machine.holder.change():
        machine.clock.now()
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)


def test_steps_and_limits_of_many_processes_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "cards"))
    gpu = virtual_gpus("v100?clock=virtual")[0]
    worker = (
        "import sys\n"
        "from zeus.device.virtual import virtual_gpus\n"
        "gpu = virtual_gpus('v100?clock=virtual')[0]\n"
        "for i in range(200):\n"
        "    gpu.machine.change_card(0, lambda c: __import__('dataclasses').replace(c, joules=c.joules + 1))\n"
        "    gpu.machine.clock.now()\n"
    )
    env = {**os.environ, "PYTHONPATH": str(SOURCES)}
    workers = [subprocess.Popen([sys.executable, "-c", worker], env=env) for _ in range(3)]
    assert [w.wait(PATIENCE_SECONDS) for w in workers] == [0, 0, 0]
    assert gpu.energy() == pytest.approx(600.0)


def test_a_forked_child_of_many_threads_shares_the_cards(tmp_path: Path) -> None:
    shared = state(tmp_path / "cards")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with shared.change() as changed:
                changed.now = 5.0
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared.read().now == 5.0


def test_a_state_of_other_cards_or_of_no_cards_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    state(tmp_path / "cards")
    before = (tmp_path / "cards").read_bytes()
    with pytest.raises(InputError, match="holds the cards 'v100x1'"):
        state(tmp_path / "cards", "a40x2")
    assert (tmp_path / "cards").read_bytes() == before
    for content in (b"my thesis", b"x" * len(before)):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(InputError, match="not a state file of virtual cards"):
            state(tmp_path / "other")
        assert (tmp_path / "other").read_bytes() == content
    with pytest.raises(InputError, match=r"is a folder\. Set ZEUS_VIRTUAL_STATE to a file"):
        state(tmp_path)


def test_a_state_of_another_format_or_boot_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "cards"
    for place in (8, 12):  # the format's byte, the boot id's first
        with state(path).change() as changed:
            changed.now = 9.0
        content = bytearray(path.read_bytes())
        content[place] ^= 0xFF
        path.write_bytes(content)
        assert state(path).read().now == 0.0


def test_a_link_in_place_of_the_state_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"")
    (tmp_path / "cards").symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=r"symbolic links\. Set ZEUS_VIRTUAL_STATE to a file"):
        state(tmp_path / "cards")
    assert (tmp_path / "precious").read_bytes() == b""


def test_a_folder_that_somebody_else_laid_out_is_not_used(tmp_path: Path) -> None:
    environ = {"TMPDIR": str(tmp_path)}
    folder = shared_folder(environ)
    assert (folder.stat().st_mode & 0o777) == 0o700
    folder.chmod(0o777)
    with pytest.raises(NotPermitted, match=f"only user {os.geteuid()} can write to"):
        shared_folder(environ)
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotPermitted, match=f"only user {os.geteuid()} can write to"):
        shared_folder(environ)


def test_cards_at_another_speed_are_other_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one file the slower clock would be behind the faster one, and energy would stand still."""
    monkeypatch.delenv(STATE, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    fast, slow = virtual_gpus("v100?speed=50")[0], virtual_gpus("v100")[0]
    before = slow.energy()
    slow.clock.sleep(0.02)
    assert slow.energy() > before
    assert fast.spec.uuid != slow.spec.uuid


def test_a_timeline_of_fast_cards_is_in_the_users_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "cards"))
    gpu = virtual_gpus("v100?speed=50")[0]
    before = gpu.clock.wall()
    monitor = PowerMonitor(gpus={0: gpu}, update_period=1.0)

    def times() -> list[float]:
        return [time for time, _ in monitor.get_power_timeline("device_instant", 0)[0]]

    begin = gpu.clock.wall()
    gpu.clock.sleep(20)  # 0.4 s for the user
    end = gpu.clock.wall()
    eventually(lambda: times()[-1] >= end)  # the thread may not have had its turn yet
    energy = monitor.get_energy(begin, end)
    monitor.stop()
    assert energy is not None
    assert energy[0] == pytest.approx(gpu.power() * 50 * (end - begin), rel=0.1)
    assert before - 0.1 <= times()[0] <= times()[-1] <= gpu.clock.wall()


def test_energy_of_a_time_that_nobody_watched_is_not_invented() -> None:
    machine = VirtualMachine.in_memory("v100")
    machine.clock.sleep(100)
    monitor = PowerMonitor(gpus={0: machine.gpus[0]})
    begin = machine.clock.wall()
    machine.run([0], seconds=10, watts=300)
    monitor.stop()
    assert monitor.get_energy(0.0, begin + 5) is None
    assert monitor.get_energy(begin + 5, begin + 3600) is None
    assert monitor.get_energy(begin, begin + 10) == {0: pytest.approx(3000, rel=0.01)}


def test_a_forked_child_can_ask_for_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path / "cards"))
    gpu = virtual_gpus("v100")[0]
    monitor = PowerMonitor(gpus={0: gpu}, update_period=0.01)
    monitor._recorder._lock.acquire()  # as the thread may hold it just then
    child = os.fork()
    if child == 0:
        status = 1
        try:
            last = max(time for time, _ in monitor.get_power_timeline("device_instant", 0)[0])
            while max(time for time, _ in monitor.get_power_timeline("device_instant", 0)[0]) == last:
                gpu.clock.sleep(0.01)
            status = 0
        finally:
            os._exit(status)
    monitor._recorder._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    monitor.stop()
